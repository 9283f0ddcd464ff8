// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Nothing in the engine can panic: built as in the kernel, it does not refer to the panic machinery.

#[test]
fn no_panic_path() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../panic-gate.sh");
    let out = std::process::Command::new("sh")
        .arg(script)
        .output()
        .expect("panic-gate.sh cannot be run");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
}
