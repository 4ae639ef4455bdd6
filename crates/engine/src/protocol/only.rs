//! Protocol sets with a single member, for engines whose connections all have the same protocol.

use super::{
    Event, Kind, MultiplexedProtocol, ProtocolKind, Protocols, Reset, ResponseSender, ResponseTerms, SerialProtocol,
    StreamEvent, StreamId,
};
use std::convert::Infallible;
use std::marker::PhantomData;
use wire::http2::HeadScratch;
use wire::message::{Draft, Fault, Field, FieldLines, Limits, PartialRequestLine, Stamp};

/// A protocol set with a single member: every connection has the serial protocol `S`, regardless of the protocol that
/// its listener is configured for.
#[derive(Debug)]
pub struct OnlySerial<S>(PhantomData<S>);

impl<S: SerialProtocol + Default> Protocols for OnlySerial<S> {
    type Terms = S::Terms;
    type Sender = S::Sender;
    type Serial = S;
    type Multiplexed = Never<S::Terms, S::Sender>;

    fn of_kind(_kind: ProtocolKind) -> Kind<Self::Serial, Self::Multiplexed> {
        Kind::Serial(S::default())
    }
}

/// A protocol set with a single member: every connection has the multiplexed protocol `M`.
#[derive(Debug)]
pub struct OnlyMultiplexed<M>(PhantomData<M>);

impl<M: MultiplexedProtocol + Default> Protocols for OnlyMultiplexed<M> {
    type Terms = M::Terms;
    type Sender = M::Sender;
    type Serial = Never<M::Terms, M::Sender>;
    type Multiplexed = M;

    fn of_kind(_kind: ProtocolKind) -> Kind<Self::Serial, Self::Multiplexed> {
        Kind::Multiplexed(M::default())
    }
}

/// A protocol that no connection speaks. The type has no values; it fills the place of the kind that is not used.
#[derive(Debug)]
pub struct Never<T, S> {
    never: Infallible,
    of: PhantomData<(T, S)>,
}

impl<T: ResponseTerms, S: ResponseSender> SerialProtocol for Never<T, S> {
    type Terms = T;
    type Sender = S;

    fn fresh(&self) -> Self {
        match self.never {}
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        _input: &'i [u8],
        _fields: &'s mut Vec<Field>,
        _limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, T>), Fault> {
        match self.never {}
    }

    fn end_of_input(&self, _rest: &[u8]) -> Result<(), Fault> {
        match self.never {}
    }

    fn forget(&mut self) {}

    fn unread_terms(&self) -> T {
        match self.never {}
    }

    fn partial_line<'i>(&self, _input: &'i [u8]) -> Option<PartialRequestLine<'i>> {
        match self.never {}
    }

    fn glance(&self, _input: &[u8], _path: &[u8]) -> Option<bool> {
        match self.never {}
    }

    fn tell_to_continue(&mut self, _out: &mut Vec<u8>) {}

    fn write_early_hints(&mut self, _fields: &FieldLines, _terms: T, _out: &mut Vec<u8>) {}

    fn begin(&mut self, _: &Draft, _: T, _: Option<u64>, _: &Stamp, _: &mut Vec<u8>) -> S {
        match self.never {}
    }
}

impl<T: ResponseTerms, S: ResponseSender> MultiplexedProtocol for Never<T, S> {
    type Terms = T;
    type Sender = S;

    fn fresh(&self) -> Self {
        match self.never {}
    }

    fn open(&mut self, _exchanges: usize, _limits: &Limits) {}

    fn next<'s, 'i: 's>(
        &'s mut self,
        _input: &'i [u8],
        _scratch: &'s mut HeadScratch,
        _limits: &Limits,
    ) -> Result<(usize, StreamEvent<'s, 'i, T>), Fault> {
        match self.never {}
    }

    fn forget(&mut self) {}

    fn unread_terms(&self) -> T {
        match self.never {}
    }

    fn begin(&mut self, _: StreamId, _: &Draft, _: T, _: Option<u64>, _: &Stamp, _: &mut Vec<u8>) -> S {
        match self.never {}
    }

    fn frame(&mut self, _stream: StreamId, _bytes: &[u8], _out: &mut Vec<u8>) {}

    fn end_response(&mut self, _stream: StreamId, _out: &mut Vec<u8>) {}

    fn reset(&mut self, _stream: StreamId, _reset: Reset, _out: &mut Vec<u8>) {}

    fn forget_stream(&mut self, _stream: StreamId) {}

    fn drain(&mut self, _out: &mut Vec<u8>) {}

    fn write_control(&mut self, _out: &mut Vec<u8>) {}
}
