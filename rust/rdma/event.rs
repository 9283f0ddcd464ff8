// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events (InfiniBand specification, 11.6.3).

use crate::ffi::bindings as ffi;

macro_rules! events {
    ($(#[$doc:meta])* $Name:ident { $($(#[$vdoc:meta])* $Variant:ident = $c:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$vdoc])* $Variant,)*
        }

        impl $Name {
            pub(super) fn as_raw(self) -> ffi::ib_event_type {
                match self {
                    $(Self::$Variant => ffi::$c,)*
                }
            }
        }
    };
}

events! {
    /// Events of a completion queue.
    CqEvent {
        /// The queue overran or is unusable for another reason.
        Error = IB_EVENT_CQ_ERR,
    }
}

events! {
    /// Events of a queue pair.
    QpEvent {
        /// An error that no completion can report stopped the queue pair.
        Fatal = IB_EVENT_QP_FATAL,
        /// The peer sent something that it must not send.
        RequestError = IB_EVENT_QP_REQ_ERR,
        /// The peer violated the access rights of memory.
        AccessError = IB_EVENT_QP_ACCESS_ERR,
        /// The first message came in while in RTR.
        CommunicationEstablished = IB_EVENT_COMM_EST,
        /// The send queue has drained.
        SendQueueDrained = IB_EVENT_SQ_DRAINED,
        /// In the error state, the last receive was taken from the shared receive queue.
        LastWqeReached = IB_EVENT_QP_LAST_WQE_REACHED,
    }
}

events! {
    /// Events of a shared receive queue.
    SrqEvent {
        /// The queue is unusable.
        Error = IB_EVENT_SRQ_ERR,
        /// Fewer receives are left than the limit that was set.
        LimitReached = IB_EVENT_SRQ_LIMIT_REACHED,
    }
}

events! {
    /// Events of a port.
    PortEvent {
        /// The port became active.
        Active = IB_EVENT_PORT_ACTIVE,
        /// The port is no longer active.
        Error = IB_EVENT_PORT_ERR,
        /// A GID was added or removed.
        GidChange = IB_EVENT_GID_CHANGE,
    }
}
