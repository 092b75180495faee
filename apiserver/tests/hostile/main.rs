//! Clients that connect, send or read in ways that exhaust the server for others.

mod bodies;
mod connections;
mod server;
mod websockets;
