//! Clients that connect, send or read in order to keep others out.

mod bodies;
mod connections;
mod websockets;
mod world;
