// SPDX-License-Identifier: GPL-2.0

//! What all objects have in common.

/// Stands for a kind of object that a driver does not have; its operations are all absent.
pub struct Unsupported;

/// Defines a core-allocated object, `$Obj<D>`, and the view of it during creation, `$New<'_, D>`.
macro_rules! core_object {
    (
        $(#[$doc:meta])*
        $Obj:ident, $New:ident, $ib:ident, $assoc:ident
    ) => {
        $(#[$doc])*
        ///
        /// # Invariants
        ///
        /// A shared reference exists only between the end of the driver's create and the end of
        /// its destroy: `drv` and `handle` are initialised, and `ib` is a live object of a device
        /// of driver `D`. `ib` is the first field, so a pointer to one is a pointer to the other.
        #[repr(C)]
        pub struct $Obj<D: $crate::rdma::Driver> {
            ib: ::kernel::types::Opaque<$crate::ffi::bindings::$ib>,
            handle: ::core::mem::MaybeUninit<
                ::kernel::sync::Arc<$crate::rdma::Handle<$crate::ffi::bindings::$ib>>,
            >,
            drv: ::core::mem::MaybeUninit<D::$assoc>,
        }

        // SAFETY: The C object is reference counted and locked by the core; the rest is `Send`.
        unsafe impl<D: $crate::rdma::Driver> Send for $Obj<D> {}
        // SAFETY: As above; methods only read fields that are constant after creation.
        unsafe impl<D: $crate::rdma::Driver> Sync for $Obj<D> {}

        impl<D: $crate::rdma::Driver> $Obj<D> {
            /// # Safety
            ///
            /// `ib` must have passed `init` and not yet `fini`, for all of `'a`.
            #[allow(dead_code)]
            #[inline]
            pub(super) unsafe fn from_raw<'a>(
                ib: *const $crate::ffi::bindings::$ib,
            ) -> &'a Self {
                // SAFETY: `ib` is the first field of an initialised `Self`.
                unsafe { &*ib.cast::<Self>() }
            }

            /// Creates the driver's part in the zeroed memory behind `ib`.
            ///
            /// # Safety
            ///
            /// `ib` must be a new object, allocated by the core with the size of `Self`, of a
            /// device of driver `D`.
            pub(super) unsafe fn init(
                ib: *mut $crate::ffi::bindings::$ib,
                make: impl FnOnce(&$New<'_, D>) -> ::kernel::error::Result<D::$assoc>,
            ) -> ::kernel::error::Result {
                let this = ib.cast::<Self>();
                let handle = $crate::rdma::Handle::new(ib)?;
                let new = $New {
                    ib,
                    handle: &handle,
                    _driver: ::core::marker::PhantomData,
                };
                match make(&new) {
                    Ok(drv) => {
                        // SAFETY: The memory has the size of `Self` and nobody else uses it yet.
                        unsafe {
                            (&raw mut (*this).handle).write(::core::mem::MaybeUninit::new(handle))
                        };
                        // SAFETY: As above.
                        unsafe {
                            (&raw mut (*this).drv).write(::core::mem::MaybeUninit::new(drv))
                        };
                        Ok(())
                    }
                    Err(e) => {
                        // The memory goes away when the core sees the error.
                        handle.close_and_wait();
                        Err(e)
                    }
                }
            }

            /// Ends the object: no handle reaches it any more, and the driver's part is dropped.
            ///
            /// # Safety
            ///
            /// Call once, after `init` succeeded; nobody else may use the object.
            pub(super) unsafe fn fini(ib: *mut $crate::ffi::bindings::$ib) {
                let this = ib.cast::<Self>();
                // SAFETY: `handle` was initialised by `init`, and is read out only here.
                let handle = unsafe { (*this).handle.assume_init_read() };
                handle.close_and_wait();
                // SAFETY: `drv` was initialised by `init`, and is dropped only here.
                unsafe { (*this).drv.assume_init_drop() };
            }

            /// The driver's part.
            #[inline]
            pub fn data(&self) -> &D::$assoc {
                // SAFETY: Initialised by the type invariant.
                unsafe { self.drv.assume_init_ref() }
            }

            /// What may outlive the object.
            pub fn handle(&self) -> &::kernel::sync::Arc<
                $crate::rdma::Handle<$crate::ffi::bindings::$ib>,
            > {
                // SAFETY: Initialised by the type invariant.
                unsafe { self.handle.assume_init_ref() }
            }

            /// The C object.
            #[allow(dead_code)]
            #[inline]
            pub(super) fn as_raw(&self) -> *mut $crate::ffi::bindings::$ib {
                self.ib.get()
            }

            /// The device the object belongs to.
            #[inline]
            pub fn device(&self) -> &$crate::rdma::Device<D> {
                // SAFETY: The object is alive by the type invariant.
                let dev = unsafe { (*self.ib.get()).device };
                // SAFETY: A device outlives its objects and is one of `D`, by the type invariant.
                unsafe { $crate::rdma::Device::from_raw(dev) }
            }
        }

        /// The object while the driver creates it: it has parents, but no driver's part yet.
        pub struct $New<'a, D: $crate::rdma::Driver> {
            ib: *mut $crate::ffi::bindings::$ib,
            handle: &'a ::kernel::sync::Arc<$crate::rdma::Handle<$crate::ffi::bindings::$ib>>,
            _driver: ::core::marker::PhantomData<D>,
        }

        impl<D: $crate::rdma::Driver> $New<'_, D> {
            /// The device the object belongs to.
            #[inline]
            pub fn device(&self) -> &$crate::rdma::Device<D> {
                // SAFETY: The core set the field up before it called create.
                let dev = unsafe { (*self.ib).device };
                // SAFETY: A device outlives its objects; `init` vouches for `D`.
                unsafe { $crate::rdma::Device::from_raw(dev) }
            }

            /// What may outlive the object: for events and completions raised by an `Arc`.
            pub fn handle(&self) -> &::kernel::sync::Arc<
                $crate::rdma::Handle<$crate::ffi::bindings::$ib>,
            > {
                self.handle
            }
        }
    };
}
pub(super) use core_object;
