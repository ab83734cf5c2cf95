//! A revoked region cannot be used.

use farreach_fabric::ExposedRegion;

fn misuse(region: ExposedRegion) {
    let slice = region.revoke().unwrap();
    println!("{:?} {:?}", slice, region.remote());
}

fn main() {}
