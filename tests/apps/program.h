#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/process.h"
#include "io/media/media_reader.h"
#include "support/temp_dir.h"

namespace miniacc::testing {

/// Long option to value; no value removes a default of Program::request().
using Flags = std::map<std::string, std::optional<std::string>>;

/// Runs the built `miniacc` in a fresh folder.
class Program : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  /// A tiny random model in the official layout, bf16, made once a test program.
  static const std::filesystem::path& model();
  /// The same weights in another layout ("comfy", "gguf", ...), made once each.
  static std::filesystem::path model_in(const std::string& format, const std::string& dtype);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  [[nodiscard]] std::filesystem::path operator/(const std::filesystem::path& name) const {
    return folder_ / name;
  }

  /// `miniacc WORDS`, in folder().
  [[nodiscard]] ProcessResult run(const Words& words, ProcessOptions options = {}) const;

  /// The words of a short `miniacc generate`: 64x64, 5 frames, 2 forwards, prompt "a fox", to
  /// clip.mp4; `changes` replaces, adds and removes flags, `switches` are flags without a value.
  [[nodiscard]] static Words request(const Flags& changes = {}, const Words& switches = {});
  [[nodiscard]] ProcessResult generate(const Flags& changes = {}, const Words& switches = {},
                                       const ProcessOptions& options = {}) const;
  /// generate() that must succeed.
  void make_clip(const Flags& changes = {}, const Words& switches = {}) const;

  /// Every file below folder(), hidden ones too, relative and sorted.
  [[nodiscard]] Words files() const;
  [[nodiscard]] std::string read(const std::filesystem::path& name) const;
  void write(const std::filesystem::path& name, const std::string& bytes) const;
  /// Decodes a clip in folder().
  [[nodiscard]] Clip clip(const std::filesystem::path& name) const;

 private:
  TempDir folder_;
};

/// One line on standard error that starts with "miniacc: error: " and holds every one of `parts`;
/// nothing on standard output; the exit code.
void expect_error(const ProcessResult& result, int exit_code,
                  const std::vector<std::string>& parts);

/// Exit code 0, with what the program said otherwise.
void expect_success(const ProcessResult& result);

/// Same pictures and same sound.
void expect_same_clip(const Clip& a, const Clip& b);

std::vector<std::string> lines_of(const std::string& text);

/// Standard output as one JSON document a line; a line that is none fails the test.
std::vector<nlohmann::json> json_lines(const std::string& text);

}  // namespace miniacc::testing
