pub mod volumes;
