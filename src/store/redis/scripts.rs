//! The scripts, each one step of the server.

/// How many there are.
pub(super) const SCRIPTS: usize = 5;

/// One step of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Charge,
    GiveBack,
    Reset,
    CountRefused,
    Shared,
}

impl Script {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Charge => concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/states.lua"),
                include_str!("scripts/charge.lua")
            ),
            Self::GiveBack => concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/give_back.lua")
            ),
            Self::Reset => concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/reset.lua")
            ),
            Self::CountRefused => concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/refused.lua")
            ),
            Self::Shared => concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/shared.lua")
            ),
        }
    }
}
