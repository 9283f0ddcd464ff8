// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Runs inputs from files: `cargo run -p metaroce-fuzz --example replay -- TARGET FILE...`

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some((_, target)) = metaroce_fuzz::TARGETS.iter().find(|t| t.0 == name) else {
        eprintln!("error: There is no target '{name}'.");
        std::process::exit(1);
    };
    for file in args {
        println!("{file}");
        target(&std::fs::read(&file).expect("the input cannot be read"));
    }
}
