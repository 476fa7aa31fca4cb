#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "apps/program.h"

namespace miniacc::testing {
namespace {

using ::testing::IsEmpty;

namespace fs = std::filesystem;

fs::path root() { return fs::path(MINIACC_TEST_DATA).parent_path(); }

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::set<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.insert(match->str(1));
  }
  return found;
}

/// Commands of the documents: lines of fenced blocks (continued ones joined) and inline code.
std::vector<std::string> commands_in(const std::string& document) {
  std::vector<std::string> commands;
  const std::string joined =
      replaced(replaced(document, "\\\n", " "), "build/release/bin/miniacc ", "miniacc ");
  bool fenced = false;
  const std::regex inline_code("`(miniacc [^`]+)`");
  for (const std::string& line : lines_of(joined)) {
    if (line.rfind("```", 0) == 0) {
      fenced = !fenced;
    } else if (fenced && line.rfind("miniacc ", 0) == 0) {
      commands.push_back(line);
    } else if (!fenced) {
      for (std::sregex_iterator match(line.begin(), line.end(), inline_code), end; match != end;
           ++match) {
        commands.push_back(match->str(1));
      }
    }
  }
  return commands;
}

/// What runs as it stands in the documents: the names of commands and flags and their order stay;
/// placeholders get values, the first of several choices is taken, a clip becomes a small one.
std::string made_concrete(std::string command, const fs::path& model) {
  command = std::regex_replace(command, std::regex(R"(\[[^\]]*…[^\]]*\])"), "");
  command = std::regex_replace(command, std::regex(R"([\[\]])"), "");
  command = std::regex_replace(command, std::regex(R"((\w+)(\\?\|[\w-]+)+)"), "$1");
  const std::pair<const char*, std::string> values[] = {
      {R"(/models/MiniMax-H3\b)", model.string()},
      {R"(\bCOMMAND\b)", "generate"},
      {R"(\bFILE\|FOLDER\b|\bPATH\b|\bMODEL\b|\bFOLDER\b)", model.string()},
      {R"(\bFILE\b|CLIP…)", "clip.mp4"},
      {R"(\bTEXT\b)", "hello"},
      {R"(\bOUT\b)", "out-of-the-example.mp4"},
      {R"( N\b)", " 1"},
      {R"( T\b)", " bf16"},
      {R"(-W \d+)", "-W 64"},
      {R"(-H \d+)", "-H 64"},
      {R"(--seconds [\d.]+|--frames \d+)", "--frames 5"}};
  for (const auto& [pattern, value] : values) {
    command = std::regex_replace(command, std::regex(pattern), value);
  }
  return command;
}

class Documents : public Program {
 protected:
  [[nodiscard]] std::string help(const std::string& command) const {
    return run({command, "--help"}).out;
  }
};

TEST_F(Documents, EveryCommandRuns) {
  make_clip();
  const fs::path program_folder = MINIACC_BIN_DIR;
  std::vector<fs::path> documents = {root() / "README.md"};
  for (const auto& entry : fs::directory_iterator(root() / "docs")) {
    if (entry.path().extension() == ".md") {
      documents.push_back(entry.path());
    }
  }
  std::sort(documents.begin(), documents.end());
  int num_run = 0;
  std::set<std::string> ran;
  for (const fs::path& document : documents) {
    for (const std::string& command : commands_in(text_of(document))) {
      const std::string concrete = made_concrete(command, model());
      // `miniacc generate` in a sentence names the command; an example has arguments.
      const bool is_mention =
          std::count(concrete.begin(), concrete.end(), ' ') == 1 && concrete != "miniacc recipes";
      const bool is_incomplete = concrete.rfind("miniacc generate ", 0) == 0 &&
                                 concrete.find(" -o ") == std::string::npos &&
                                 concrete.find("--help") == std::string::npos;
      if (is_mention || is_incomplete || !ran.insert(concrete).second) {
        continue;
      }
      SCOPED_TRACE(document.filename().string() + ": " + command + "\n  run as " + concrete);
      for (const char* name : {"out-of-the-example.mp4", "again.mp4"}) {
        fs::remove_all(*this / name);
      }
      ProcessOptions options;
      options.folder = folder();
      const ProcessResult result = run_process(
          {"sh", "-c", "PATH=\"" + program_folder.string() + ":$PATH\"; " + concrete}, options);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      ++num_run;
    }
  }
  EXPECT_GE(num_run, 9) << "the documents have examples, and this test finds them";
  EXPECT_TRUE(fs::exists(*this / "fox.mp4")) << "the README's example was among them";
}

TEST_F(Documents, FlagsOfTheCommandLinePageExist) {
  std::string every_help;
  for (const std::string command : {"generate", "bench", "show", "judge", "inspect", "tokenize",
                                    "recipes", "make-checkpoint"}) {
    every_help += help(command);
  }
  for (const Words& command : {Words{"lora", "convert"}, Words{"adaln", "rebase"},
                               Words{"adaln", "lift"}, Words{"convert"}, Words{"quantize"}}) {
    Words words = command;
    words.emplace_back("--help");
    every_help += run(words).out;
  }
  const std::regex flag("(--[a-z][a-z0-9-]+)");
  const std::set<std::string> real = matches(every_help, flag);
  std::vector<std::string> invented;
  for (const fs::path& page :
       {root() / "docs/cli.md", root() / "docs/tools.md", root() / "README.md"}) {
    // Only what is typeset as code: a table's rule is dashes too.
    for (const std::string& code : matches(text_of(page), std::regex("`([^`]+)`"))) {
      for (const std::string& name : matches(code, flag)) {
        if (real.count(name) == 0) {
          invented.push_back(name);
        }
      }
    }
  }
  EXPECT_THAT(invented, IsEmpty());
}

TEST_F(Documents, FlagsOfGenerateAreDocumented) {
  const std::string page = text_of(root() / "docs/cli.md");
  std::vector<std::string> undocumented;
  for (const std::string& name : matches(help("generate"), std::regex("(--[a-z][a-z0-9-]+)"))) {
    if (name != "--help" && page.find(name) == std::string::npos) {
      undocumented.push_back(name);
    }
  }
  EXPECT_THAT(undocumented, IsEmpty());
}

TEST_F(Documents, RecipesOfTheCommandLinePageAreTheProgramsOwn) {
  const std::string page = text_of(root() / "docs/cli.md");
  for (const auto& recipe : nlohmann::json::parse(run({"recipes", "--json"}).out)) {
    EXPECT_NE(page.find("`" + recipe.at("name").get<std::string>() + "`"), std::string::npos)
        << recipe.at("name");
  }
}

}  // namespace
}  // namespace miniacc::testing
