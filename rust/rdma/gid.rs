// SPDX-License-Identifier: GPL-2.0

//! GIDs and address vectors.
//!
//! On RoCE a GID is an IPv6 address, or an IPv4 address mapped into one (RoCEv2 annex A17.4.5).

use crate::{ffi::bindings as ffi, sync::NetDev};
use core::marker::PhantomData;
use kernel::sync::aref::ARef;

/// A GID, in network byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    pub(super) fn from_raw(raw: &ffi::ib_gid) -> Self {
        // SAFETY: All views of the union are plain bytes.
        Self(unsafe { raw.raw })
    }

    pub(super) fn as_raw(&self) -> ffi::ib_gid {
        ffi::ib_gid { raw: self.0 }
    }

    /// The IPv4 address, if it is a mapped one (`::ffff:a.b.c.d`, RFC 4291 2.5.5.2).
    pub fn to_ipv4(&self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// Whether it is all zero.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether it is link-local (`fe80::/10`).
    pub fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

/// Encapsulation that a GID stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// InfiniBand or RoCEv1 (no UDP).
    IbOrRoceV1,
    /// RoCEv2: UDP over IPv4 or IPv6.
    RoceUdp,
}

/// An entry of a port's GID table.
pub struct GidAttr<'a> {
    raw: *const ffi::ib_gid_attr,
    _ref: PhantomData<&'a ()>,
}

impl GidAttr<'_> {
    /// # Safety
    ///
    /// `raw` must be an entry on which somebody holds a reference for `'a`.
    pub(super) unsafe fn from_raw(raw: *const ffi::ib_gid_attr) -> Self {
        Self {
            raw,
            _ref: PhantomData,
        }
    }

    fn attr(&self) -> &ffi::ib_gid_attr {
        // SAFETY: Entries do not change while they are referenced, except for `ndev`, which is
        // never read through this reference.
        unsafe { &*self.raw }
    }

    /// The GID.
    pub fn gid(&self) -> Gid {
        Gid::from_raw(&self.attr().gid)
    }

    /// Its index in the table.
    pub fn index(&self) -> u16 {
        self.attr().index
    }

    /// The port, from 1.
    pub fn port(&self) -> u32 {
        self.attr().port_num
    }

    /// Its encapsulation.
    pub fn gid_type(&self) -> GidType {
        if self.attr().gid_type == ffi::IB_GID_TYPE_ROCE_UDP_ENCAP {
            GidType::RoceUdp
        } else {
            GidType::IbOrRoceV1
        }
    }

    /// The network device it belongs to: the port's, or a VLAN or other device on top of it. `None`
    /// if that is going away.
    pub fn netdev(&self) -> Option<ARef<NetDev>> {
        // SAFETY: The entry is referenced for `'a`.
        let dev = unsafe { ffi::mroce_gid_attr_ndev_hold(self.raw) };
        // SAFETY: The helper took a reference for us.
        unsafe { NetDev::from_raw_owned(dev) }
    }
}

/// An entry of a port's GID table that is being added or deleted.
pub struct ChangingGid<'a>(GidAttr<'a>);

impl ChangingGid<'_> {
    /// # Safety
    ///
    /// `raw` must be an entry that does not change for `'a`.
    pub(super) unsafe fn from_raw(raw: *const ffi::ib_gid_attr) -> Self {
        // SAFETY: The caller vouches for it.
        Self(unsafe { GidAttr::from_raw(raw) })
    }

    /// The GID.
    pub fn gid(&self) -> Gid {
        self.0.gid()
    }

    /// Its index in the table.
    pub fn index(&self) -> u16 {
        self.0.index()
    }

    /// The network device it belongs to, see [`GidAttr::netdev`].
    pub fn netdev(&self) -> Option<ARef<NetDev>> {
        // SAFETY: The entry is valid for `'a`.
        let dev = unsafe { ffi::mroce_gid_attr_ndev_changing(self.0.raw) };
        // SAFETY: The helper took a reference for us.
        unsafe { NetDev::from_raw_owned(dev) }
    }
}

/// The numbers in an address vector, without references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AhValues {
    /// Destination.
    pub dgid: Gid,
    /// Index of the source in the port's GID table.
    pub sgid_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN bits.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Static rate limit (`enum ib_rate`), 0: none.
    pub static_rate: u8,
    /// Source port, from 1.
    pub port: u32,
    /// Destination MAC address as the core resolved it.
    pub dmac: [u8; 6],
}

impl AhValues {
    /// Writes a RoCE address vector without a reference to the source GID.
    pub(super) fn store(&self, raw: &mut ffi::rdma_ah_attr) {
        *raw = pin_init::zeroed();
        raw.type_ = ffi::RDMA_AH_ATTR_TYPE_ROCE;
        raw.ah_flags = ffi::IB_AH_GRH as u8;
        raw.grh.dgid = self.dgid.as_raw();
        raw.grh.sgid_index = self.sgid_index;
        raw.grh.flow_label = self.flow_label;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = self.port;
        raw.__bindgen_anon_1.roce = ffi::roce_ah_attr { dmac: self.dmac };
    }
}

/// An address vector as a callback's argument.
pub struct AhAttr<'a> {
    raw: &'a ffi::rdma_ah_attr,
}

impl<'a> AhAttr<'a> {
    pub(super) fn new(raw: &'a ffi::rdma_ah_attr) -> Self {
        Self { raw }
    }

    /// Whether it has a GRH (always so on RoCE).
    pub fn has_grh(&self) -> bool {
        u32::from(self.raw.ah_flags) & ffi::IB_AH_GRH as u32 != 0
    }

    /// The source's entry in the GID table; `None` without a GRH.
    pub fn sgid(&self) -> Option<GidAttr<'a>> {
        let attr = self.raw.grh.sgid_attr;
        if !self.has_grh() || attr.is_null() {
            return None;
        }
        // SAFETY: The core holds a reference for as long as the address vector is an argument.
        Some(unsafe { GidAttr::from_raw(attr) })
    }

    /// All numbers in it.
    pub fn values(&self) -> AhValues {
        let raw = self.raw;
        let dmac = if raw.type_ == ffi::RDMA_AH_ATTR_TYPE_ROCE {
            // SAFETY: `type_` says which view of the union is valid.
            unsafe { raw.__bindgen_anon_1.roce.dmac }
        } else {
            [0; 6]
        };
        AhValues {
            dgid: Gid::from_raw(&raw.grh.dgid),
            sgid_index: raw.grh.sgid_index,
            flow_label: raw.grh.flow_label,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            sl: raw.sl,
            static_rate: raw.static_rate,
            port: raw.port_num,
            dmac,
        }
    }
}
