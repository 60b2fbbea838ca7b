//! Spans for a collector, over OTLP: one for each attempt. Only in a build with the feature `otel`,
//! and only if a variable names the collector.

use std::env;
use std::sync::OnceLock;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// The variables of OpenTelemetry that name a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// What passes spans on, if somebody wants them. Must not be called on a runtime: what sends them
/// has a thread of its own.
pub(crate) fn layer<S>() -> Option<impl Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let named = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    ENDPOINTS.iter().find(|name| named(name))?;
    let exporter = SpanExporter::builder().with_http().build().ok()?;
    let name = env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "tenure".to_owned());
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(name).build())
        .build();
    let tracer = provider.tracer("tenure");
    let _once = PROVIDER.set(provider);
    // Not those of the client that sends them.
    let ours = Targets::new().with_target("tenure", tracing::Level::INFO);
    Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours))
}

/// Sends what is left; waits a little for the collector.
pub(crate) fn finish() {
    if let Some(provider) = PROVIDER.get()
        && provider.shutdown().is_err()
    {
        // Not in its own words: they may quote the URL of the collector, with a password in it.
        tracing::debug!("some spans were not sent; is the collector up?");
    }
}
