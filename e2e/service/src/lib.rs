//! What the service is made of. To copy: [`publish`], and how `main` uses it.

pub mod publish;
pub mod resource;
pub mod truth;
pub mod work;
