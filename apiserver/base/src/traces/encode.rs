//! Spans as `ExportTraceServiceRequest` of OpenTelemetry's protocol, in protobuf
//! (<https://github.com/open-telemetry/opentelemetry-proto>). Only what is sent here; pure.

use super::span::{Attribute, Finished};

/// What the numbers of the protocol mean.
const SERVER: u64 = 2;
const INTERNAL: u64 = 1;
const ERROR: u64 = 2;

const SCOPE: &str = "k8s.io/apiserver";

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u64, key: &str, value: &Attribute) {
        self.message(field, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, |any| match value {
                Attribute::Text(text) => any.bytes(1, text.as_bytes()),
                Attribute::Number(number) => any.number(3, *number),
            });
        });
    }
}

/// All spans of one process; `resource` says which process.
pub fn request(resource: &[(&str, Attribute)], spans: &[Finished]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |attributes| {
            resource.iter().for_each(|(key, value)| attributes.attribute(1, key, value));
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| scope.bytes(1, SCOPE.as_bytes()));
            spans.iter().for_each(|span| write(of_scope, span));
        });
    });
    request.0
}

/// The span of a request, and one for each of its steps.
fn write(scope: &mut Message, span: &Finished) {
    let trace = &span.context.trace;
    scope.message(2, |out| {
        out.bytes(1, trace);
        out.bytes(2, &span.context.span);
        if let Some(parent) = &span.parent {
            out.bytes(4, parent);
        }
        out.bytes(5, span.name.as_bytes());
        out.number(6, SERVER);
        out.fixed(7, span.began);
        out.fixed(8, span.ended);
        span.attributes.iter().for_each(|(key, value)| out.attribute(9, key, value));
        if let Some(link) = &span.link {
            out.message(13, |out| {
                out.bytes(1, &link.trace);
                out.bytes(2, &link.span);
            });
        }
        if span.failed {
            out.message(15, |status| status.number(3, ERROR));
        }
    });
    for step in &span.steps {
        scope.message(2, |out| {
            out.bytes(1, trace);
            out.bytes(2, &step.id);
            out.bytes(4, &span.context.span);
            out.bytes(5, step.name.as_bytes());
            out.number(6, INTERNAL);
            out.fixed(7, step.began);
            out.fixed(8, step.ended);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::Context;
    use super::*;

    #[test]
    fn numbers_are_as_protobuf_writes_them() {
        let mut message = Message::default();
        message.number(1, 300);
        message.fixed(7, 1);
        message.attribute(9, "k", &Attribute::Number(200));
        let expected = [
            &[0x08, 0xac, 0x02][..],
            &[0x39, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x4a, 8, 0x0a, 1, b'k', 0x12, 3, 0x18, 0xc8, 0x01],
        ];
        assert_eq!(message.0, expected.concat());
    }

    #[test]
    fn a_span_stands_in_its_resource_and_scope() {
        let context = Context { trace: [1; 16], span: [2; 8], sampled: true };
        let span = Finished {
            context,
            parent: None,
            link: None,
            name: "GET".to_owned(),
            began: 1,
            ended: 2,
            attributes: vec![],
            steps: vec![],
            failed: false,
        };
        let bytes = request(&[("service.name", Attribute::Text("apiserver".to_owned()))], &[span]);
        // One ResourceSpans, which is all there is.
        assert_eq!((bytes[0], usize::from(bytes[1])), (0x0a, bytes.len() - 2));
        let id: Vec<u8> = [&[0x0a, 16][..], &[1; 16], &[0x12, 8], &[2; 8], &[0x2a, 3], b"GET"].concat();
        assert!(bytes.windows(id.len()).any(|part| part == id));
    }
}
