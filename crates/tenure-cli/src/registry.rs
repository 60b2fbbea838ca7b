//! The stores that the command can use.

use std::sync::OnceLock;

use tenure::Stores;
use tenure::core::StoreKind;
use tenure_drill::GroundKind;

/// The stores of a command: which URLs it opens, and on which of them it can hold a drill.
///
/// # Examples
/// A command with a store of your own beside those of tenure:
/// ```no_run
/// use std::process::ExitCode;
///
/// use tenure_cli::Registry;
/// # mod toy {
/// #     pub const TOY: tenure::core::StoreKind = tenure::core::StoreKind {
/// #         forms: &["toy:PATH"], aliases: &[], default_url: None,
/// #         parse: |_| Err(tenure::Error::config("a toy")),
/// #     };
/// # }
///
/// fn main() -> ExitCode {
///     tenure_cli::run(Registry::built_in().with_store(toy::TOY))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    pub(crate) stores: Stores,
    pub(crate) grounds: Vec<GroundKind>,
}

impl Registry {
    /// The stores that the features of this crate bring.
    pub fn built_in() -> Registry {
        Registry { stores: Stores::built_in(), grounds: GROUNDS.to_vec() }
    }

    /// The same, and a store more.
    #[must_use]
    pub fn with_store(mut self, kind: StoreKind) -> Registry {
        self.stores = self.stores.with(kind);
        self
    }

    /// The same, and drills on a store more.
    #[must_use]
    pub fn with_ground(mut self, kind: GroundKind) -> Registry {
        self.grounds.insert(0, kind);
        self
    }
}

/// The stores that drills can be had on, a line each.
const GROUNDS: &[GroundKind] = &[
    #[cfg(feature = "sqlite")]
    tenure_sqlite::GROUND,
    #[cfg(feature = "postgres")]
    tenure_postgres::GROUND,
    #[cfg(feature = "redis")]
    tenure_redis::GROUND,
];

/// One for the process: the guardian, a candidate of a drill and every command ask it.
static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// Makes this the registry of the process. The first one stays.
pub(crate) fn install(registry: Registry) {
    let _first = REGISTRY.set(registry);
}

/// The registry of the process.
pub(crate) fn registry() -> &'static Registry {
    REGISTRY.get_or_init(Registry::built_in)
}
