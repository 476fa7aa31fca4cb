#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/component.h"
#include "core/error.h"

namespace miniacc {

/// What a configuration says about something that the shapes of the tensors tell as well.
struct ConfigClaim {
  std::string fact;  ///< key in Facts
  std::string said;  ///< "<file> says <key>", the start of a message
  std::vector<double> values;
  bool counts = false;  ///< the number of values is what the fact is about, not the values
};

/// What the tensors of a component tell.
struct Fact {
  std::vector<double> values;
  std::string stack =
      {};  ///< canonical stem of a numbered stack whose length this is, "" otherwise
  std::string basis = "the tensors say";  ///< how a message introduces the values
};
using Facts = std::map<std::string, Fact, std::less<>>;

/// Appends the numbers of `value`, a number or nested lists of them. kInvalidInput starts with
/// `where` and says that the value holds something else or nothing at all.
[[nodiscard]] Status flatten_numbers(const nlohmann::json& value, const std::string& where,
                                     std::vector<double>& out);

/// "/text_config/head_dim" -> "text_config.head_dim": a JSON pointer as messages spell it.
[[nodiscard]] std::string key_of_pointer(std::string pointer);

/// Appends what `root`, read from `where`, says about sizes, in the official and the diffusers
/// spelling. kInvalidInput names a value that is not a number.
[[nodiscard]] Status take_claims(Component component, const nlohmann::json& root,
                                 const std::string& where, std::vector<ConfigClaim>& claims);

/// The same for the metadata of a llama.cpp file (text encoder), whose keys start with the
/// architecture's name.
void take_llama_claims(const std::map<std::string, std::string>& metadata, const std::string& where,
                       std::vector<ConfigClaim>& claims);

/// One sentence for each claim that the facts contradict; facts that are absent (a tower that is
/// not stored, a time MLP in the pruned form) contradict nothing.
[[nodiscard]] std::vector<std::string> contradictions(const std::vector<ConfigClaim>& claims,
                                                      const Facts& facts);

/// "the file has blocks 0 to 1: blocks.2 is missing", for a stack of `stored` members.
[[nodiscard]] std::string missing_member(const std::string& stack, std::int64_t stored);

}  // namespace miniacc
