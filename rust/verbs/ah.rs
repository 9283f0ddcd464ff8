// SPDX-License-Identifier: GPL-2.0

//! Address handles: where datagrams go.
//!
//! A send request names its address handle by number, in user space's ring as in a kernel client's.
//! The table of numbers is used where interrupts may be off.

use super::{dev::device_of, dev::Device, Driver};
use crate::{
    abi,
    rdma::{self, AhAttr, AhValues, GidType},
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, SpinLockIrq},
};

/// An address as requests under way hold it.
pub(super) struct Address {
    pub(super) pd: u32,
    /// Source, 16 bytes in network order (IPv4 mapped).
    pub(super) sgid: [u8; 16],
    /// Interface of the source address.
    pub(super) ifindex: u32,
    pub(super) values: AhValues,
}

struct Numbers {
    tree: RBTree<u32, Arc<Address>>,
    last: u32,
}

/// All address handles of a device, by number. Any context.
#[pin_data]
pub(super) struct AhTable {
    #[pin]
    numbers: SpinLockIrq<Numbers>,
}

impl AhTable {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            numbers <- new_spinlock_irq!(
                Numbers { tree: RBTree::new(), last: 0 },
                "metaroce ahs"
            ),
        })
    }

    /// Numbers an address; numbers are not 0, and come again only after 2^32 others.
    fn insert(&self, address: Arc<Address>, flags: kernel::alloc::Flags) -> Result<u32> {
        let node = RBTreeNodeReservation::new(flags)?;
        let mut numbers = self.numbers.lock();
        loop {
            numbers.last = numbers.last.wrapping_add(1);
            let number = numbers.last;
            if number != 0 && numbers.tree.get(&number).is_none() {
                numbers.tree.insert(node.into_node(number, address));
                return Ok(number);
            }
        }
    }

    fn remove(&self, number: u32) {
        let gone = self.numbers.lock().tree.remove_node(&number);
        drop(gone);
    }

    /// The address under a number.
    pub(super) fn get(&self, number: u32) -> Option<Arc<Address>> {
        self.numbers.lock().tree.get(&number).cloned()
    }
}

/// The core's address handle.
pub struct AhObject {
    dev: Arc<Device>,
    number: u32,
    values: AhValues,
}

impl AhObject {
    /// By which send requests name it.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

#[vtable]
impl rdma::AhOps<Driver> for AhObject {
    fn create(
        ah: &rdma::NewAh<'_, Driver>,
        attr: &AhAttr<'_>,
        may_sleep: bool,
        udata: Option<rdma::Udata<'_>>,
    ) -> Result<Self> {
        let flags = if may_sleep { GFP_KERNEL } else { GFP_ATOMIC };
        let values = attr.values();
        let sgid = attr.sgid().ok_or(EINVAL)?;
        let (from, to) = (sgid.gid(), values.dgid);
        if values.port != 1
            || sgid.gid_type() != GidType::RoceUdp
            || from.to_ipv4().is_some() != to.to_ipv4().is_some()
            || to.is_zero()
        {
            return Err(EINVAL);
        }
        let dev = device_of(ah.device());
        let address = Arc::new(
            Address {
                pd: ah.pd().data().id(),
                sgid: from.0,
                ifindex: sgid.netdev().ok_or(ENODEV)?.ifindex(),
                values,
            },
            flags,
        )?;
        let number = dev.ahs.insert(address, flags)?;
        let this = Self {
            dev: dev.clone(),
            number,
            values,
        };
        if let Some(udata) = udata {
            udata.respond(&abi::CreateAhResp {
                ah_num: number,
                reserved: 0,
            })?;
        }
        Ok(this)
    }

    fn query(&self, _ah: &rdma::Ah<Driver>) -> Result<AhValues> {
        Ok(self.values)
    }
}

impl Drop for AhObject {
    fn drop(&mut self) {
        self.dev.ahs.remove(self.number);
    }
}
