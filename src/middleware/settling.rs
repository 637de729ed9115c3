//! What is done when the inner service has answered, or failed.

use http::{Response, StatusCode};

use super::Decisions;
use super::recording::Recording;
use super::settings::Settings;
use crate::response::grpc;

impl Settings {
    /// Writes what an allowed request's response gets. `decisions` ends with this layer's own.
    pub(super) fn finish<B>(
        &self,
        response: &mut Response<B>,
        decisions: Decisions,
        recording: Option<Box<Recording>>,
    ) {
        let is_shadow = self.limiter.is_shadow();
        let status = status_of(response);
        let is_refunded = self.is_refunded(status);
        let settled = decisions.settle(is_shadow, is_refunded);
        if let Some(recording) = recording {
            recording.record(Some(status), is_refunded);
        }
        let inner = response.extensions_mut().remove::<Decisions>();
        if !is_shadow
            && let Some(decision) = settled.as_ref().or(decisions.of_layer(is_shadow))
            && !decision.is_uncounted()
            && let Some(decision) = decisions.to_tell(decision, inner.as_ref())
        {
            self.write_fields(response, &decision);
        }
        response
            .extensions_mut()
            .insert(decisions.finished(inner, settled, is_shadow));
    }

    /// Does what is to be done when the inner service has failed: that counts as an answer of status 500, which nobody has given.
    pub(super) fn fail(&self, decisions: &Decisions, recording: Option<Box<Recording>>) {
        let is_refunded = self.is_refunded(StatusCode::INTERNAL_SERVER_ERROR);
        if is_refunded {
            decisions.settle(self.limiter.is_shadow(), true);
        }
        if let Some(recording) = recording {
            recording.record(None, is_refunded);
        }
    }

    fn is_refunded(&self, status: StatusCode) -> bool {
        let refund_if = self.refund_if.as_ref();
        refund_if.is_some_and(|refund_if| refund_if(status))
    }
}

/// The status that a response means. A gRPC call is answered 200 also when it fails, and so is a refusal of one.
fn status_of<B>(response: &Response<B>) -> StatusCode {
    grpc::status_of(response.headers()).unwrap_or(response.status())
}
