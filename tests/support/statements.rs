//! The statements that a client of Postgres executes, parsed from the bytes on its connection.

use std::collections::HashMap;

/// The first message of a client that wants TLS; the server answers with one byte.
const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// The client's messages so far: the incomplete rest, and its prepared statements.
#[derive(Default)]
pub struct Statements {
    rest: Vec<u8>,
    has_started: bool,
    statements: HashMap<Vec<u8>, String>,
}

/// The part of the client's bytes that can be forwarded.
pub struct Whole {
    /// Complete messages.
    pub bytes: Vec<u8>,
    /// The label of the statement that they execute: its first comment, or else its first 40 characters.
    pub executes: Option<String>,
}

impl Statements {
    /// Takes bytes that the client sent, and returns the complete messages.
    pub fn take_messages(&mut self, chunk: &[u8]) -> Whole {
        self.rest.extend_from_slice(chunk);
        if !self.has_started {
            // The first messages have no type byte, and they arrive complete.
            self.has_started = self.rest.get(4..8) != Some(&SSL_REQUEST);
            return Whole { bytes: std::mem::take(&mut self.rest), executes: None };
        }
        let (mut whole, mut bound, mut executes) = (0, None, None);
        while let Some(message) = first_message(&self.rest[whole..]) {
            let body = &message[5..];
            match message[0] {
                b'P' => {
                    let (name, rest) = text(body);
                    let label = label(text(rest).0);
                    self.statements.insert(name.to_vec(), label);
                }
                b'B' => bound = self.statements.get(text(text(body).1).0).cloned(),
                b'E' => executes = Some(bound.take().unwrap_or_default()),
                // The pool also pings a returned connection, and that is not a step of an actor.
                b'Q' if text(body).0 == b"COMMIT" => executes = Some("COMMIT".to_owned()),
                _ => {}
            }
            whole += message.len();
        }
        let rest = self.rest.split_off(whole);
        Whole { bytes: std::mem::replace(&mut self.rest, rest), executes }
    }
}

/// The first complete message: a type byte, a length of four bytes that counts itself, and the body.
pub fn first_message(bytes: &[u8]) -> Option<&[u8]> {
    let length: [u8; 4] = bytes.get(1..5)?.try_into().ok()?;
    bytes.get(..1 + u32::from_be_bytes(length) as usize)
}

/// The label of the statement that this message prepares, if it prepares one.
pub fn prepared_statement(message: &[u8]) -> Option<String> {
    (message.first() == Some(&b'P')).then(|| label(text(text(&message[5..]).1).0))
}

/// A string that ends with a NUL, and the bytes after it.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// The label of a statement: its first comment, or else its first 40 characters.
pub(crate) fn statement_label(sql: &str) -> String {
    label(sql.as_bytes())
}

/// A statement's label: its first comment, or else its first 40 characters.
fn label(sql: &[u8]) -> String {
    let sql = String::from_utf8_lossy(sql);
    let line = sql.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.trim_start_matches("-- ").split([':', ',']).next().unwrap_or_default().chars().take(40).collect()
}
