#pragma once

namespace pullback {

/// Puts handlers before those that there are, once for the process.
void handle_signals();

}  // namespace pullback
