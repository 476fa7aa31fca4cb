#include "apps/process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

namespace miniacc::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxInputBytes = 32 * 1024;  // fits into a pipe without a reader
constexpr int kCannotExecute = 127;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Both ends of a pipe, closed at the end.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] int read_end() const { return ends_[0]; }
  [[nodiscard]] int write_end() const { return ends_[1]; }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }
  [[nodiscard]] bool open_for_reading() const { return ends_[0] >= 0; }

 private:
  void close_end(int end) {
    if (ends_[end] >= 0) {
      ::close(ends_[end]);
      ends_[end] = -1;
    }
  }
  int ends_[2] = {-1, -1};
};

/// Programs under test find no user's cache: what another build kept must not decide a test.
[[maybe_unused]] const bool kNoUserCache =
    ::unsetenv("HOME") == 0 && ::unsetenv("XDG_CACHE_HOME") == 0;

/// The child's side between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* arguments, const ProcessOptions& options, const Pipe& in,
                         const Pipe& out, const Pipe& err) {
  if (::dup2(in.read_end(), STDIN_FILENO) < 0 || ::dup2(out.write_end(), STDOUT_FILENO) < 0 ||
      ::dup2(err.write_end(), STDERR_FILENO) < 0) {
    ::_exit(kCannotExecute);
  }
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) {
    ::_exit(kCannotExecute);
  }
  if (options.max_file_bytes) {
    const rlimit limit{*options.max_file_bytes, *options.max_file_bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      ::_exit(kCannotExecute);
    }
  }
  if (options.obey_permissions && ::geteuid() == 0 &&
      ::prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0) {
    ::_exit(kCannotExecute);
  }
  ::execvp(arguments[0], arguments);
  ::_exit(kCannotExecute);
}

/// Appends what can be read; closes the pipe at its end.
void drain(Pipe& pipe, std::string& text) {
  char buffer[65536];
  const ssize_t count = ::read(pipe.read_end(), buffer, sizeof(buffer));
  if (count > 0) {
    text.append(buffer, static_cast<std::size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    pipe.close_read();
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  if (options.input.size() > kMaxInputBytes) {
    throw std::invalid_argument("run_process: the input is larger than a pipe holds");
  }
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);

  Pipe in;
  Pipe out;
  Pipe err;
  if (::write(in.write_end(), options.input.data(), options.input.size()) !=
      static_cast<ssize_t>(options.input.size())) {
    throw std::system_error(errno, std::generic_category(), "write");
  }
  in.close_write();

  const pid_t child = ::fork();
  if (child < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (child == 0) {
    become(arguments.data(), options, in, out, err);
  }
  out.close_write();
  err.close_write();

  ProcessResult result;
  const auto begin = Clock::now();
  Clock::time_point signal_time;
  while (out.open_for_reading() || err.open_for_reading()) {
    pollfd files[2] = {{out.read_end(), POLLIN, 0}, {err.read_end(), POLLIN, 0}};  // -1: skipped
    if (::poll(files, 2, 100) > 0) {
      if (files[0].revents != 0) {
        drain(out, result.out);
      }
      if (files[1].revents != 0) {
        drain(err, result.err);
      }
    }
    if (options.signal != 0 && !result.signalled &&
        (result.out.find(options.signal_when) != std::string::npos ||
         result.err.find(options.signal_when) != std::string::npos)) {
      signal_time = Clock::now();
      result.signalled = ::kill(child, options.signal) == 0;
    }
    if (!result.timed_out && seconds_since(begin) > options.timeout_s) {
      result.timed_out = true;
      ::kill(child, SIGKILL);
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (result.signalled) {
    result.seconds_after_signal = seconds_since(signal_time);
  }
  if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    result.end_signal = WTERMSIG(status);
  }
  return result;
}

}  // namespace miniacc::testing
