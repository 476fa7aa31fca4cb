#pragma once

#include "miniacc/cancel_token.h"

namespace miniacc {

/// While it lives, SIGINT, SIGTERM and SIGHUP cancel its token; a second signal ends the process at
/// once. One object a process: signal handlers are process-wide.
class SignalCancel {
 public:
  SignalCancel();
  ~SignalCancel();
  SignalCancel(const SignalCancel&) = delete;
  SignalCancel& operator=(const SignalCancel&) = delete;

  [[nodiscard]] const CancelToken& token() const { return token_; }

 private:
  CancelToken token_;
};

}  // namespace miniacc
