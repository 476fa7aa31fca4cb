#include "signal_cancel.h"

#include <atomic>
#include <csignal>

namespace miniacc {
namespace {

// A signal handler can reach nothing but a global; SignalCancel owns what it points to.
std::atomic<CancelToken*> g_token{nullptr};
static_assert(std::atomic<CancelToken*>::is_always_lock_free);

extern "C" void handle_signal(int signal_number) {
  CancelToken* token = g_token.load();
  if (token == nullptr || token->cancelled()) {
    std::signal(signal_number, SIG_DFL);
    std::raise(signal_number);
    return;
  }
  token->cancel();
}

}  // namespace

SignalCancel::SignalCancel() {
  g_token.store(&token_);
  std::signal(SIGINT, handle_signal);
  std::signal(SIGTERM, handle_signal);
  // A reader that went away (`miniacc ... | head`) and a full file-size limit are errors of write
  // calls, which we check; the default action would kill us in the middle of a file.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

SignalCancel::~SignalCancel() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  g_token.store(nullptr);
}

}  // namespace miniacc
