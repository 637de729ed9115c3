//! An HTTP API for operators, as a router to mount: policies, the state of keys, who is refused, resets, usage, health.
//!
//! `routes.rs` is the table of what there is, `answers/` what each route answers, `docs/admin.openapi.json` what clients read of it.
//! Nothing is served but behind the gate (`gate.rs`).

#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod admin;
mod admin_error;
mod admin_key;
mod answers;
mod ask;
mod events;
mod gate;
mod problem;
mod routes;
mod shown;
mod site;

pub use self::admin::Admin;
pub use self::admin_error::AdminError;
pub use self::admin_key::{AdminKey, AdminKeyError};
