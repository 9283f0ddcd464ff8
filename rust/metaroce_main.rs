// SPDX-License-Identifier: GPL-2.0

//! metaroce: RDMA over lossy Ethernet, in software.
//!
//! A reliable-connection RDMA device (verbs unchanged) on top of a transport
//! that expects packets to be lost and reordered: many UDP paths per pair of
//! devices, selective acknowledgement per path, one congestion controller.
//!
//! ```text
//!                 applications (libibverbs)      kernel clients
//!                          |                          |
//!                   drivers/infiniband/core  ---------+
//!                          |
//!   rdma      ops tables, objects, pinned memory, mapped queues
//!   verbs     PD MR CQ QP SRQ: state rules, rings, matching       process context
//!   datapath  Conn: lock, timer; engine <-> packets, memory       softirq
//!   engine    streams, connection, paths: the protocol, no I/O    softirq
//!   net       UDP tunnel sockets, packets, routes, notifiers      softirq
//!                          |
//!                   kernel network stack
//! ```
//!
//! Allowed imports (an arrow is "may import"): `engine -> (core)`, `sync ->
//! ffi`, `net -> ffi sync`, `rdma -> ffi sync`, `abi -> (core)`, `verbs -> rdma
//! sync abi engine`, `datapath -> verbs net engine sync`, `ctl -> verbs
//! datapath engine sync`, and this file -> all. Unsafe code lives in `ffi`,
//! `sync`, `net` and `rdma` only.

#![crate_name = "metaroce"]

pub mod abi;
pub mod ctl;
pub mod datapath;
pub mod engine;
pub mod ffi;
pub mod net;
pub mod rdma;
pub mod sync;
pub mod verbs;

use kernel::{
    prelude::*,
    str::CStr, //
};

/// The transport below the verbs.
pub type BoundTransport = datapath::Datapath;

module! {
    type: Metaroce,
    name: "metaroce",
    authors: ["metaroce developers"],
    description: "RDMA over lossy Ethernet",
    license: "GPL",
    alias: ["rdma-link-metaroce"],
    params: {
        port: u16 {
            default: 4794,
            description: "UDP destination port of the protocol, the same on all machines",
        },
        paths: u8 {
            default: 8,
            description: "Paths of a connection, 4 to 64",
        },
        ack_delay: u8 {
            default: 1,
            description: "Delay acknowledgements that the peer does not wait for (0: never)",
        },
        tx_bursts: u8 {
            default: 1,
            description: "Send bursts by UDP segmentation offload (0: each packet alone)",
        },
    },
}

/// Set-up and teardown. The fields are dropped in order: first no device can be
/// added any more and all are unregistered, then the network stack stops
/// calling, then the tables go.
pub struct Metaroce {
    _links: rdma::LinkRegistration<Link>,
    _netdevs: net::netdev::Registration<NetdevEvents>,
    _tables: Tables,
}

/// The module-wide tables and directories.
struct Tables;

impl Tables {
    fn new(settings: datapath::Settings) -> Result<Self> {
        datapath::SHARED.put(datapath::Shared::new(settings)?)?;
        let this = Self;
        verbs::DEVICES.put(verbs::Devices::new()?)?;
        ctl::debugfs::init()?;
        Ok(this)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        ctl::debugfs::exit();
        if let Some(devices) = verbs::DEVICES.get() {
            devices.shutdown();
        }
        drop(verbs::DEVICES.take());
        if let Some(shared) = datapath::SHARED.get() {
            shared.shutdown();
        }
        drop(datapath::SHARED.take());
    }
}

/// `rdma link add NAME type metaroce netdev DEV`.
struct Link;

impl rdma::LinkType for Link {
    type Driver = verbs::Driver;
    const TYPE: &'static CStr = c"metaroce";

    fn newlink(name: &CStr, netdev: &sync::NetDev) -> Result {
        verbs::newlink(name, netdev).inspect_err(|e| {
            pr_err!(
                "{}: cannot attach to {}: {:?}\n",
                name,
                net::netdev::name(netdev),
                e
            );
        })?;
        if let Some(dev) = rdma::Device::<verbs::Driver>::get_by_netdev(netdev) {
            // Only for looking at; the device works without.
            let _ = ctl::debugfs::add(dev.name(), dev.data().port());
        }
        Ok(())
    }

    fn going_away() {
        if let Some(devices) = verbs::DEVICES.get() {
            devices.fail_all();
        }
    }
}

/// The RDMA core itself turns link changes into port events.
struct NetdevEvents;

impl net::netdev::Observer for NetdevEvents {
    fn netdev_event(netdev: &sync::NetDev, event: net::netdev::Event) {
        if event == net::netdev::Event::Unregister {
            if let Some(dev) = rdma::Device::<verbs::Driver>::get_by_netdev(netdev) {
                dev.unregister_queued();
            }
        }
    }
}

impl kernel::Module for Metaroce {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let settings = datapath::Settings {
            port: *module_parameters::port.value_ref(),
            paths: *module_parameters::paths.value_ref(),
            tx_bursts: *module_parameters::tx_bursts.value_ref() != 0,
            ack_delay: *module_parameters::ack_delay.value_ref() != 0,
        };
        if settings.port == 0 || !(4..=64).contains(&settings.paths) {
            pr_err!("parameter out of range: port 1 to 65535, paths 4 to 64\n");
            return Err(EINVAL);
        }
        let tables = Tables::new(settings)?;
        let netdevs = net::netdev::Registration::new()?;
        let links = rdma::LinkRegistration::new()?;
        Ok(Self {
            _links: links,
            _netdevs: netdevs,
            _tables: tables,
        })
    }
}
