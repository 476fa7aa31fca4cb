#include "signal_cancel.h"

#include <atomic>
#include <csignal>

namespace miniacc {
namespace {

// A signal handler can reach nothing but a global; SignalCancel owns what it points to.
std::atomic<CancelToken*> g_token{nullptr};
// A closed terminal (SIGHUP) must leave no partial file either.
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
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
  // Without SA_RESTART: a read that waits for a prompt on standard input ends as well.
  struct sigaction action = {};
  action.sa_handler = handle_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal_number : kStopSignals) {
    sigaction(signal_number, &action, nullptr);
  }
  // A reader that went away (`miniacc ... | head`) and a full file-size limit are errors of write
  // calls, which we check; the default action would kill us in the middle of a file.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

SignalCancel::~SignalCancel() {
  for (const int signal_number : kStopSignals) {
    std::signal(signal_number, SIG_DFL);
  }
  g_token.store(nullptr);
}

}  // namespace miniacc
