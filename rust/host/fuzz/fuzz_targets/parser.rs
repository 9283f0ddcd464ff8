// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metaroce_fuzz::parser(data));
