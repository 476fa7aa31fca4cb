#include "apps/program.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace miniacc::testing {
namespace {

namespace fs = std::filesystem;

const std::string& program_path() {
  static const std::string path = MINIACC_BIN_DIR "/miniacc";
  return path;
}

constexpr const char* kErrorStart = "miniacc: error: ";

}  // namespace

fs::path Program::model_in(const std::string& format, const std::string& dtype) {
  static const TempDir models;
  fs::path path = models / (format + "-" + dtype);
  if (!fs::exists(path)) {
    const ProcessResult made = run_process({program_path(), "make-checkpoint", "--size", "tiny",
                                            "--format", format, "--dtype", dtype, path.string()});
    if (made.exit_code != 0) {
      throw std::runtime_error("make-checkpoint failed: " + made.err);
    }
  }
  return path;
}

const fs::path& Program::model() {
  static const fs::path path = model_in("official", "bf16");
  return path;
}

ProcessResult Program::run(const Words& words, ProcessOptions options) const {
  Words command = {program_path()};
  command.insert(command.end(), words.begin(), words.end());
  if (options.folder.empty()) {
    options.folder = folder();
  }
  ProcessResult result = run_process(command, options);
  EXPECT_FALSE(result.timed_out) << result.err;
  return result;
}

Program::Words Program::request(const Flags& changes, const Words& switches) {
  // One thread: the work is too small for two, which wait for each other on a busy machine.
  Flags flags = {{"--threads", "1"},    {"--model", model().string()},
                 {"--prompt", "a fox"}, {"--width", "64"},
                 {"--height", "64"},    {"--frames", "5"},
                 {"--recipe", "pdmd2"}, {"--output", "clip.mp4"}};
  for (const auto& [name, value] : changes) {
    flags[name] = value;
  }
  Words words = {"generate"};
  for (const auto& [name, value] : flags) {
    if (value && value->empty()) {  // CLI11 takes the word after "--name=" for the value
      words.insert(words.end(), {name, ""});
    } else if (value) {
      words.push_back(name + "=" + *value);
    }
  }
  words.insert(words.end(), switches.begin(), switches.end());
  return words;
}

ProcessResult Program::generate(const Flags& changes, const Words& switches,
                                const ProcessOptions& options) const {
  return run(request(changes, switches), options);
}

void Program::make_clip(const Flags& changes, const Words& switches) const {
  expect_success(generate(changes, switches));
}

Program::Words Program::files() const {
  Words names;
  for (const auto& entry : fs::recursive_directory_iterator(folder())) {
    if (!entry.is_directory()) {
      names.push_back(fs::relative(entry.path(), folder()).string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Program::read(const fs::path& name) const {
  std::ifstream stream(folder() / name, std::ios::binary);
  EXPECT_TRUE(stream) << name;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void Program::write(const fs::path& name, const std::string& bytes) const {
  std::ofstream stream(folder() / name, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(stream) << name;
}

Clip Program::clip(const fs::path& name) const {
  auto decoded = read_clip(folder() / name);
  if (!decoded) {
    ADD_FAILURE() << decoded.error().message;
    return {};
  }
  return *std::move(decoded);
}

void expect_error(const ProcessResult& result, int exit_code,
                  const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  std::vector<std::string> errors;
  for (const std::string& line : lines_of(result.err)) {
    if (line.rfind(kErrorStart, 0) == 0) {
      errors.push_back(line);
    }
  }
  ASSERT_EQ(errors.size(), 1U) << result.err;
  EXPECT_EQ(errors.front(), lines_of(result.err).back()) << "the error ends the output";
  for (const std::string& part : parts) {
    EXPECT_THAT(errors.front(), ::testing::HasSubstr(part));
  }
}

void expect_success(const ProcessResult& result) {
  ASSERT_EQ(result.exit_code, 0) << "signal " << result.end_signal << "\n" << result.err;
}

void expect_same_clip(const Clip& a, const Clip& b) {
  ASSERT_GT(a.num_frames + a.num_samples(), 0);
  EXPECT_EQ(a.num_frames, b.num_frames);
  EXPECT_TRUE(a.frames == b.frames) << "the pictures differ";
  EXPECT_TRUE(a.audio == b.audio) << "the sound differs";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> documents;
  for (const std::string& line : lines_of(text)) {
    documents.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(documents.back().is_object()) << line;
  }
  return documents;
}

}  // namespace miniacc::testing
