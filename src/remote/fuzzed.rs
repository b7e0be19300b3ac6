//! Servers that answer with the fuzzer's bytes, for `tests/fuzz`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, sink};

use super::connection::{Connection, Seen};
use super::fault::apart;
use super::limits::{Limits, Spent};
use super::notes::Notes;
use super::protocol::{ProtocolName, Right, Turn, Wishes, describe};
use super::target::{Address, Target};
use crate::definition::Model;
use crate::fixture::HostTensor;

thread_local! {
    /// The answer of each connection that will be opened.
    static ANSWERS: RefCell<VecDeque<Vec<u8>>> = RefCell::default();
}

/// A connection to a server that answers the first request with the next of these answers, and then closes.
pub(super) fn next_connection() -> Option<DuplexStream> {
    const ROOM: usize = 1 << 16;
    let answer = ANSWERS.with_borrow_mut(VecDeque::pop_front)?;
    let (own, mut server) = duplex(ROOM);
    tokio::spawn(async move {
        let _ = server.read_u8().await;
        let (mut requests, mut answers) = tokio::io::split(server);
        let sending = async {
            let _ = answers.write_all(&answer).await;
            let _ = answers.shutdown().await;
        };
        let mut nowhere = sink();
        let _ = tokio::join!(sending, tokio::io::copy(&mut requests, &mut nowhere));
    });
    Some(own)
}

/// Asks a server, which gives these answers, about its model and for two answers of the model.
pub fn answers(protocol: ProtocolName, is_binary: bool, is_whole: bool, answers: impl Iterator<Item = Vec<u8>>) {
    ANSWERS.set(answers.collect());
    let address = Address { url: "http://127.0.0.1".into(), ..Address::default() };
    let Ok(Ok(found)) = Target::find(&address, Vec::new()) else { return };
    // Without an address, connections beyond the given answers fail.
    let target = Target { addresses: Vec::new(), ..found };
    let limits = Limits { patience: Duration::from_secs(5), ..Limits::default() };
    let (target, spent) = (Arc::new(target), Arc::new(Spent::new(limits)));
    let Ok(mut connection) = Connection::new(target.clone(), spent) else { return };
    let wishes = Wishes { protocol: Some(protocol), batch_size: 1, is_binary, is_whole, ..Wishes::default() };
    let described = match apart(describe(&mut connection, &target, &wishes, right)) {
        Ok(Ok(described)) => described,
        Ok(Err(fault)) => return drop(target.cleaned(fault)),
        Err(error) => return drop(target.cleaned_text(&format!("{error:#}"), 100)),
    };
    let mut notes = Notes::default();
    for number in 0..2 {
        let turn = Turn { trial: 0, number };
        let (mut seen, mut reader) = (Seen::default(), described.protocol.reader(turn));
        let answered = connection.exchange(&described.protocol.call(turn), &mut seen, reader.as_mut());
        let checked = answered.and_then(|()| reader.check(&seen)).map_err(|fault| target.cleaned(fault));
        notes.add(&seen, checked.as_ref().err());
    }
}

/// Two inputs with their right outputs, for a model with an output `y`.
fn right(model: &Model) -> anyhow::Result<Option<Right>> {
    if model.phases.iter().flat_map(|plan| &plan.outputs).all(|output| output.name != "y") {
        return Ok(None);
    }
    let tensor = |first: f32| HostTensor { shape: vec![1, 2], data: vec![first, 2.0].into() };
    let inputs = vec![model.inputs.iter().map(|_| tensor(0.0)).collect(); 2];
    let outputs = [1.0, 3.0].map(|first| vec![("y".to_owned(), tensor(first))]);
    Right::new(inputs, outputs.into(), 1).map(Some)
}
