//! Kinds of connections: over which network, and in which protocol.

use engine::{
    AllProtocols, EngineSocket, Http1, Negotiation, Net, OnlySerial, Os, Poller, ProtocolKind, Protocols, Waker,
};
use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;

/// The network and the protocol of the connections of a world.
pub(crate) trait Kind: 'static {
    type Net: Net<Listener = EngineSocket>;
    type Protocols: Protocols;

    fn net() -> io::Result<(Self::Net, Poller, Waker)>;
}

/// These protocols over plain sockets.
pub(crate) struct OverSockets<P>(PhantomData<P>);

impl<P: Protocols + 'static> Kind for OverSockets<P> {
    type Net = Os;
    type Protocols = P;

    fn net() -> io::Result<(Os, Poller, Waker)> {
        Os::new()
    }
}

/// HTTP/1 over plain sockets.
pub(crate) type Plain = OverSockets<OnlySerial<Http1>>;

/// A choice of the protocol of a connection.
pub(crate) trait Choice: Debug + 'static {
    /// As [`Protocols::choose`].
    fn choose(listener: ProtocolKind, negotiation: Negotiation<'_>, first: &[u8]) -> Option<ProtocolKind>;
}

/// All protocols that Kirsch speaks, chosen by `C`.
#[derive(Debug)]
pub(crate) struct ChosenBy<C>(PhantomData<C>);

impl<C: Choice> Protocols for ChosenBy<C> {
    type Terms = <AllProtocols as Protocols>::Terms;
    type Sender = <AllProtocols as Protocols>::Sender;
    type Serial = <AllProtocols as Protocols>::Serial;
    type Multiplexed = <AllProtocols as Protocols>::Multiplexed;

    fn of_kind(kind: ProtocolKind) -> engine::Kind<Self::Serial, Self::Multiplexed> {
        AllProtocols::of_kind(kind)
    }

    fn choose(listener: ProtocolKind, negotiation: Negotiation<'_>, first: &[u8]) -> Option<ProtocolKind> {
        C::choose(listener, negotiation, first)
    }
}
