//! Limits that are set at run time.

mod answers;
mod files;
mod setting;
mod sharing;
mod stale;
