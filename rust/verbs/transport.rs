// SPDX-License-Identifier: GPL-2.0

//! The seam to the data path.

use super::{dev::Device, qp::Qp};
use crate::{
    engine::{RequesterAttr, StreamAttr},
    sync::NetDev,
};
use kernel::{
    prelude::*,
    sync::{aref::ARef, Arc},
};

/// Where a QP's messages go.
pub struct AddressVector {
    /// Source, 16 bytes in network order (IPv4 mapped).
    pub sgid: [u8; 16],
    /// Destination.
    pub dgid: [u8; 16],
    /// Index of the source in the GID table.
    pub sgid_index: u8,
    /// Hop limit; 0 means the network's default.
    pub hop_limit: u8,
    /// DSCP and ECN bits; the transport owns the latter.
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// The source GID's network device (a VLAN device for a VLAN's GID). Not to be kept beyond its
    /// unregistration.
    pub netdev: ARef<NetDev>,
}

/// Name of a port counter.
pub use crate::rdma::StatDesc as CounterName;

/// What carries messages between QPs. Implemented by the data path, bound in the crate root as
/// `crate::BoundTransport`.
///
/// All functions run in process context without spinlocks held.
pub trait Transport: Sized + Send + Sync + 'static {
    /// What the transport hangs on a connected QP.
    type Link: Send + Sync;
    /// What the transport keeps for a device.
    type Port: Send + Sync;

    /// A device comes up on `netdev`.
    fn open(netdev: &NetDev, guid: [u8; 8]) -> Result<Arc<Self::Port>>;
    /// The device is gone, all its QPs are detached.
    fn close(port: &Arc<Self::Port>);
    /// Names of the port's counters.
    const COUNTERS: &'static [CounterName];
    /// Calls `set` with the index and value of each counter.
    fn read_counters(port: &Self::Port, set: &mut dyn FnMut(usize, u64));
    /// The QP is ready to receive; connects it with [`Qp::set_link`]. May sleep.
    fn attach(dev: &Arc<Device>, qp: &Arc<Qp>, av: &AddressVector, attr: &StreamAttr) -> Result;
    /// The datagram QP may send and receive; hangs a link on it.
    fn attach_datagram(dev: &Arc<Device>, qp: &Arc<Qp>) -> Result;
    /// The device can be reached at `gid`, its GID number `index`, an address of `netdev`. An error if
    /// it cannot.
    fn add_address(dev: &Arc<Device>, gid: [u8; 16], index: u16, netdev: &NetDev) -> Result;
    /// The device loses that GID.
    fn del_address(dev: &Arc<Device>, gid: [u8; 16], index: u16);
    /// The QP may send, or its attributes as a requester have changed.
    fn start_requester(qp: &Arc<Qp>, attr: &RequesterAttr) -> Result;
    /// The peer may have so many READs and atomics outstanding from now on.
    fn set_responses(qp: &Arc<Qp>, responses: u8);
    /// The QP leaves ([`Qp::take_link`]). After return none of its softirq methods runs or will.
    fn detach(qp: &Arc<Qp>);
    /// The QP is in error: requests that were pulled are flushed in order before this returns, and
    /// nothing is received any more.
    fn fail(qp: &Arc<Qp>);
    /// Requests were posted.
    fn kick(qp: &Arc<Qp>);
}
