//! The client role: placeholder until the server role stands.
