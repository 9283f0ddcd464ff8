// SPDX-License-Identifier: GPL-2.0

//! A table from 32-bit numbers to shared objects.

use super::{random_u32, SpinLockBh};
use kernel::{
    alloc::Flags,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    static_lock_class,
    str::CStr,
    sync::Arc,
};

/// Shards of a table: lookups of different keys then rarely meet on one lock.
const SHARDS: usize = 64;

/// How often [`KeyTable::insert_random`] draws before it gives up. With a mask of 24 bits and a
/// table half full, 64 failures in a row have probability 2^-64.
const DRAWS: usize = 64;

/// Maps numbers (QP numbers, memory keys, connection ids) to `Arc`s.
///
/// Every method may be called in process and softirq context; those that take [`Flags`] allocate
/// with them, before any lock is taken. Locks of the table are leaves: no closure passed in runs
/// under them except where a method says so.
#[pin_data]
pub struct KeyTable<T> {
    #[pin]
    shards: [SpinLockBh<RBTree<u32, Arc<T>>>; SHARDS],
}

impl<T: Send + Sync> KeyTable<T> {
    /// An empty table; `name` is what lockdep calls its locks.
    pub fn new(name: &'static CStr) -> impl PinInit<Self> {
        pin_init!(Self {
            shards <- pin_init::pin_init_array_from_fn(move |_| {
                SpinLockBh::new(RBTree::new(), name, static_lock_class!())
            }),
        })
    }

    #[inline]
    fn shard(&self, key: u32) -> &SpinLockBh<RBTree<u32, Arc<T>>> {
        // Keys may be handed out in sequence or carry their variable part in the upper bits;
        // a multiplicative hash (2^32 divided by the golden ratio) spreads both.
        let hash = key.wrapping_mul(0x9e37_79b9) >> 26;
        &self.shards[hash as usize % SHARDS]
    }

    /// Adds `value` under `key`. Fails with `EEXIST` when the key is taken.
    pub fn insert(&self, key: u32, value: Arc<T>, flags: Flags) -> Result {
        let node = RBTreeNodeReservation::new(flags)?;
        let mut tree = self.shard(key).lock();
        if tree.get(&key).is_some() {
            return Err(EEXIST);
        }
        tree.insert(node.into_node(key, value));
        Ok(())
    }

    /// Adds the object that `make` builds for a random, unguessable key `k` with `k & !mask == 0`
    /// and `k != 0`, and returns both. `make` runs without locks and may be called again for
    /// another key when the first one turns out to be taken.
    pub fn insert_random(
        &self,
        mask: u32,
        flags: Flags,
        mut make: impl FnMut(u32) -> Result<Arc<T>>,
    ) -> Result<(u32, Arc<T>)> {
        for _ in 0..DRAWS {
            let key = random_u32() & mask;
            if key == 0 || self.shard(key).lock().get(&key).is_some() {
                continue;
            }
            let value = make(key)?;
            match self.insert(key, value.clone(), flags) {
                Ok(()) => return Ok((key, value)),
                Err(e) if e == EEXIST => continue,
                Err(e) => return Err(e),
            }
        }
        Err(ENOSPC)
    }

    /// The object under `key`.
    #[inline]
    pub fn get(&self, key: u32) -> Option<Arc<T>> {
        self.shard(key).lock().get(&key).cloned()
    }

    /// Takes the object under `key` out. It is dropped, or not, by the caller, outside the lock.
    pub fn remove(&self, key: u32) -> Option<Arc<T>> {
        let node = self.shard(key).lock().remove_node(&key);
        node.map(|node| node.to_key_value().1)
    }

    /// Calls `f` for each object, in no order, under the lock of its shard: `f` must neither sleep
    /// nor use the table.
    pub fn for_each(&self, mut f: impl FnMut(u32, &Arc<T>)) {
        for shard in &self.shards {
            for (key, value) in shard.lock().iter() {
                f(*key, value);
            }
        }
    }

    /// Takes out some object for which `pick` (under the shard's lock) says yes.
    pub fn remove_first(&self, mut pick: impl FnMut(u32, &Arc<T>) -> bool) -> Option<Arc<T>> {
        for shard in &self.shards {
            let mut tree = shard.lock();
            let key = tree.iter().find(|(k, v)| pick(**k, v)).map(|(k, _)| *k);
            let node = key.and_then(|key| tree.remove_node(&key));
            drop(tree);
            if let Some(node) = node {
                return Some(node.to_key_value().1);
            }
        }
        None
    }

    /// Keeps the objects for which `keep` says yes; the others are dropped outside the lock.
    pub fn retain(&self, mut keep: impl FnMut(u32, &Arc<T>) -> bool) {
        while let Some(gone) = self.remove_first(|k, v| !keep(k, v)) {
            drop(gone);
        }
    }

    /// Number of objects, as it was at some time during the call.
    pub fn len(&self) -> usize {
        let mut n: usize = 0;
        self.for_each(|_, _| n = n.saturating_add(1));
        n
    }

    /// Whether no object was seen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
