// SPDX-License-Identifier: GPL-2.0

//! Attributes of devices and ports.

use crate::ffi::bindings as ffi;

/// Payload size of a path (`enum ib_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Mtu {
    pub(super) fn from_raw(raw: ffi::ib_mtu) -> Option<Self> {
        Some(match raw {
            ffi::IB_MTU_256 => Self::B256,
            ffi::IB_MTU_512 => Self::B512,
            ffi::IB_MTU_1024 => Self::B1024,
            ffi::IB_MTU_2048 => Self::B2048,
            ffi::IB_MTU_4096 => Self::B4096,
            _ => return None,
        })
    }

    pub(super) fn as_raw(self) -> ffi::ib_mtu {
        match self {
            Self::B256 => ffi::IB_MTU_256,
            Self::B512 => ffi::IB_MTU_512,
            Self::B1024 => ffi::IB_MTU_1024,
            Self::B2048 => ffi::IB_MTU_2048,
            Self::B4096 => ffi::IB_MTU_4096,
        }
    }

    /// In bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::B256 => 256,
            Self::B512 => 512,
            Self::B1024 => 1024,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// The largest that `bytes` of payload allow; the smallest if none does.
    pub fn fitting(bytes: u32) -> Self {
        match bytes {
            4096.. => Self::B4096,
            2048.. => Self::B2048,
            1024.. => Self::B1024,
            512.. => Self::B512,
            _ => Self::B256,
        }
    }
}

/// Link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// Logical state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PortState {
    /// Not usable.
    #[default]
    Down,
    /// Usable.
    Active,
}

/// Physical state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PhysState {
    /// Switched off.
    #[default]
    Disabled,
    /// Looking for a link.
    Polling,
    /// Link there.
    LinkUp,
}

/// Port capabilities (`IB_PORT_*_SUP`).
pub mod port_cap {
    use crate::ffi::bindings as ffi;

    /// The port can be managed by a connection manager.
    pub const CM: u32 = ffi::IB_PORT_CM_SUP;
}

/// Answer to a port query (`struct ib_port_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysState,
    /// Largest payload the port can carry; default: none of the values, set it.
    pub max_mtu: Option<Mtu>,
    /// Largest payload it carries now.
    pub active_mtu: Option<Mtu>,
    /// MTU of the network device in bytes.
    pub phys_mtu: u32,
    /// Entries of the GID table.
    pub gid_tbl_len: i32,
    /// Entries of the partition key table.
    pub pkey_tbl_len: u16,
    /// [`port_cap`] bits.
    pub port_cap_flags: u32,
    /// Longest message in bytes.
    pub max_msg_sz: u32,
    /// Speed of a lane, `enum ib_port_speed`.
    pub active_speed: u16,
    /// Lanes, `enum ib_port_width`.
    pub active_width: u8,
}

impl PortAttr {
    pub(super) fn store(&self, raw: &mut ffi::ib_port_attr) {
        raw.state = match self.state {
            PortState::Down => ffi::IB_PORT_DOWN,
            PortState::Active => ffi::IB_PORT_ACTIVE,
        };
        raw.phys_state = match self.phys_state {
            PhysState::Disabled => ffi::IB_PORT_PHYS_STATE_DISABLED,
            PhysState::Polling => ffi::IB_PORT_PHYS_STATE_POLLING,
            PhysState::LinkUp => ffi::IB_PORT_PHYS_STATE_LINK_UP,
        } as u8;
        raw.max_mtu = self.max_mtu.map_or(0, Mtu::as_raw);
        raw.active_mtu = self.active_mtu.map_or(0, Mtu::as_raw);
        raw.phys_mtu = self.phys_mtu;
        raw.gid_tbl_len = self.gid_tbl_len;
        raw.pkey_tbl_len = self.pkey_tbl_len;
        raw.port_cap_flags = self.port_cap_flags;
        raw.max_msg_sz = self.max_msg_sz;
        raw.active_speed = self.active_speed;
        raw.active_width = self.active_width;
        // One virtual lane; the others of InfiniBand's do not exist on Ethernet.
        raw.max_vl_num = 1;
    }
}

/// Whether atomic operations are atomic, and with respect to whom (`enum ib_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AtomicCap {
    /// There are none.
    #[default]
    None,
    /// Among the operations of this device.
    Hca,
    /// Also with respect to the CPUs.
    Global,
}

/// Limits and capabilities of a device (`struct ib_device_attr`). Zero is "none" for all.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // The names are the C field's, whose meaning the specification gives (11.2.1.2).
pub struct DeviceAttr {
    pub fw_ver: u64,
    /// Network byte order.
    pub sys_image_guid: [u8; 8],
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    /// Largest memory region in bytes.
    pub max_mr_size: u64,
    /// Bit mask of page sizes.
    pub page_size_cap: u64,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    /// `enum ib_device_cap_flags`.
    pub device_cap_flags: u64,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub atomic_cap: AtomicCap,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_pkeys: u16,
    /// Time to make an acknowledgement: 4.096 us times 2 to this power.
    pub local_ca_ack_delay: u8,
    pub max_fast_reg_page_list_len: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
}

impl DeviceAttr {
    pub(super) fn store(&self, raw: &mut ffi::ib_device_attr) {
        macro_rules! copy {
            ($($field:ident)*) => { $(raw.$field = self.$field;)* };
        }
        copy! {
            fw_ver vendor_id vendor_part_id hw_ver max_mr_size page_size_cap max_qp max_qp_wr
            device_cap_flags max_send_sge max_recv_sge max_sge_rd max_cq max_cqe max_mr max_mw
            max_pd max_qp_rd_atom max_res_rd_atom max_qp_init_rd_atom max_ah max_srq max_srq_wr
            max_srq_sge max_pkeys local_ca_ack_delay max_fast_reg_page_list_len max_mcast_grp
            max_mcast_qp_attach max_total_mcast_qp_attach
        }
        raw.sys_image_guid = u64::from_ne_bytes(self.sys_image_guid);
        raw.atomic_cap = match self.atomic_cap {
            AtomicCap::None => ffi::IB_ATOMIC_NONE,
            AtomicCap::Hca => ffi::IB_ATOMIC_HCA,
            AtomicCap::Global => ffi::IB_ATOMIC_GLOB,
        };
        // Made with `rdma link add`, so it goes with `rdma link delete`.
        raw.kernel_cap_flags = ffi::IBK_ALLOW_USER_UNREG.into();
    }
}
