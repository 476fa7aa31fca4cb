#include "io/tokenizer_files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/tokenizer_split.h"

namespace miniacc {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The released tokenizer.json has 11 MB; parsing takes some ten times the file's size in memory.
constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{32} << 20U;
constexpr int kMaxJsonDepth = 64;
// The released vocabulary has 151,936 rows.
constexpr std::size_t kMaxTokens = std::size_t{1} << 20U;
constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kMaxAddedTokens = 1024;
constexpr std::size_t kMaxAddedTokenBytes = 256;

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<std::string> read_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    const bool missing = error == std::errc::no_such_file_or_directory;
    return fail(missing ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("{}: {}", path.string(), error.message()));
  }
  if (size > kMaxFileBytes) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: has {} bytes, at most {} are accepted",
                                                      path.string(), size, kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file || static_cast<std::size_t>(file.gcount()) != text.size()) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot read {} bytes", path.string(), size));
  }
  return text;
}

/// Thrown out of nlohmann's parser by the checks below, caught by parse_json().
struct JsonRefused {
  std::string reason;
};

/// Parses a document whose objects have no key twice (the parser would keep the last one without a
/// word) and whose nesting is bounded; the document must be an object.
Result<Json> parse_json(const fs::path& path) {
  MINIACC_ASSIGN(const std::string text, read_file(path));
  std::vector<std::set<std::string>> keys;  // of each open object
  const auto check = [&keys](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxJsonDepth) {
      throw JsonRefused{fmt::format("is nested deeper than {} levels", kMaxJsonDepth)};
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      if (!keys.back().insert(parsed.get<std::string>()).second) {
        throw JsonRefused{fmt::format("has the key {} twice in one object", parsed.dump())};
      }
    }
    return true;
  };
  try {
    Json document = Json::parse(text, check);
    if (!document.is_object()) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{}: is a JSON {}, wanted an object",
                                                        path.string(), document.type_name()));
    }
    return document;
  } catch (const JsonRefused& refused) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", path.string(), refused.reason));
  } catch (const Json::parse_error& error) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is not valid JSON at byte {}", path.string(), error.byte));
  } catch (const Json::exception& error) {  // e.g. a number out of range
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", path.string(), error.what()));
  }
}

/// Reads fields of one file's document; every message begins with the file.
class DocumentReader {
 public:
  explicit DocumentReader(fs::path path) : path_(std::move(path)) {}

  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what,
                                             ErrorCode code = ErrorCode::kInvalidInput) const {
    return fail(code, fmt::format("{}: {}", path_.string(), what));
  }

  [[nodiscard]] Result<std::vector<std::pair<std::string, std::int32_t>>> vocabulary(
      const Json& object, const std::string& name) const {
    if (!object.is_object()) {
      return refuse(fmt::format("{} is a {}, wanted an object", name, object.type_name()));
    }
    if (object.size() > kMaxTokens) {
      return refuse(fmt::format("{} has {} tokens, at most {} are accepted", name, object.size(),
                                kMaxTokens));
    }
    std::vector<std::pair<std::string, std::int32_t>> tokens;
    tokens.reserve(object.size());
    for (const auto& [text, id] : object.items()) {
      if (text.empty() || text.size() > kMaxTokenBytes) {
        return refuse(fmt::format("{} has a token of {} bytes, wanted 1 to {}", name, text.size(),
                                  kMaxTokenBytes));
      }
      MINIACC_ASSIGN(const std::int32_t number,
                     token_id(id, fmt::format("{}[\"{}\"]", name, text)));
      tokens.emplace_back(text, number);
    }
    return tokens;
  }

  [[nodiscard]] Result<std::int32_t> token_id(const Json& value, const std::string& name) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= kMaxTokens) {
      return refuse(fmt::format("{} is {}, wanted a token id below {}", name,
                                value.is_number() ? value.dump() : value.type_name(), kMaxTokens));
    }
    return static_cast<std::int32_t>(value.get<std::uint64_t>());
  }

  /// Either "left right" or ["left", "right"].
  [[nodiscard]] Result<std::vector<BpeMerge>> merges(const Json& list) const {
    if (!list.is_array() || list.size() > kMaxTokens) {
      return refuse(fmt::format("model.merges is not a list of at most {} merges", kMaxTokens));
    }
    std::vector<BpeMerge> merges;
    merges.reserve(list.size());
    for (const Json& item : list) {
      if (item.is_string()) {
        MINIACC_ASSIGN(BpeMerge merge,
                       merge_line(item.get_ref<const std::string&>(), merges.size()));
        merges.push_back(std::move(merge));
      } else if (item.is_array() && item.size() == 2 && item[0].is_string() &&
                 item[1].is_string()) {
        merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
      } else {
        return refuse(fmt::format("merge {} is neither \"left right\" nor [\"left\", \"right\"]",
                                  merges.size()));
      }
    }
    return merges;
  }

  [[nodiscard]] Result<BpeMerge> merge_line(const std::string& line, std::size_t index) const {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos) {
      return refuse(fmt::format("merge {} is not two symbols with a space between", index));
    }
    return BpeMerge{line.substr(0, space), line.substr(space + 1)};
  }

  /// An added token: its text, and flags that must all be off (they change what is matched).
  [[nodiscard]] Result<std::string> added_token_text(const Json& token,
                                                     const std::string& name) const {
    const Json* content = nullptr;
    if (token.is_object() && token.contains("content")) {
      content = &token["content"];
      for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"}) {
        if (token.contains(flag) && token[flag] != Json(false)) {
          return refuse(fmt::format("{} has {} = {}, only false is supported", name, flag,
                                    token[flag].dump()),
                        ErrorCode::kUnsupported);
        }
      }
    } else if (token.is_string()) {
      content = &token;
    }
    if (content == nullptr || !content->is_string()) {
      return refuse(fmt::format("{} has no text", name));
    }
    const auto& text = content->get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxAddedTokenBytes) {
      return refuse(
          fmt::format("{} has {} bytes, wanted 1 to {}", name, text.size(), kMaxAddedTokenBytes));
    }
    return text;
  }

  [[nodiscard]] Status check_count(std::size_t count) const {
    if (count > kMaxAddedTokens) {
      return refuse(
          fmt::format("has {} added tokens, at most {} are accepted", count, kMaxAddedTokens));
    }
    return {};
  }

  /// The regular expression of the pre-tokenizer; anything but Split + ByteLevel is refused.
  [[nodiscard]] Result<std::string> split_pattern(const Json& document) const {
    const std::string wanted =
        "wanted a Sequence of Split (Regex, Isolated, not inverted) and ByteLevel (no prefix "
        "space, no own regex)";
    const Json pre = document.value("pre_tokenizer", Json());
    if (!is_typed(pre, "Sequence") || !pre.contains("pretokenizers") ||
        !pre["pretokenizers"].is_array() || pre["pretokenizers"].size() != 2) {
      return refuse("pre_tokenizer is of another kind, " + wanted, ErrorCode::kUnsupported);
    }
    const Json& split = pre["pretokenizers"][0];
    const Json& bytes = pre["pretokenizers"][1];
    const bool split_fits = is_typed(split, "Split") && split.contains("pattern") &&
                            split["pattern"].is_object() && split["pattern"].contains("Regex") &&
                            split["pattern"]["Regex"].is_string() &&
                            split.value("behavior", Json()) == Json("Isolated") &&
                            split.value("invert", Json(false)) == Json(false);
    const bool bytes_fit = is_typed(bytes, "ByteLevel") &&
                           bytes.value("add_prefix_space", Json(true)) == Json(false) &&
                           bytes.value("use_regex", Json(true)) == Json(false);
    if (!split_fits || !bytes_fit) {
      return refuse("pre_tokenizer's steps are of another kind, " + wanted,
                    ErrorCode::kUnsupported);
    }
    return split["pattern"]["Regex"].get<std::string>();
  }

  [[nodiscard]] Status check_model(const Json& model) const {
    if (!model.is_object() || model.value("type", Json("BPE")) != Json("BPE")) {
      return refuse("model is not of type BPE", ErrorCode::kUnsupported);
    }
    for (const char* flag : {"byte_fallback", "ignore_merges", "fuse_unk"}) {
      if (model.contains(flag) && model[flag] != Json(false) && !model[flag].is_null()) {
        return refuse(
            fmt::format("model.{} is {}, only false is supported", flag, model[flag].dump()),
            ErrorCode::kUnsupported);
      }
    }
    for (const char* field :
         {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      if (model.contains(field) && !model[field].is_null() && model[field] != Json("")) {
        return refuse(fmt::format("model.{} is set, which is not supported", field),
                      ErrorCode::kUnsupported);
      }
    }
    return {};
  }

  static bool is_typed(const Json& value, const char* type) {
    return value.is_object() && value.contains("type") && value["type"] == Json(type);
  }

 private:
  fs::path path_;
};

Status read_tokenizer_json(const fs::path& path, TokenizerData& data) {
  MINIACC_ASSIGN(const Json document, parse_json(path));
  const DocumentReader reader(path);
  if (!document.contains("model")) {
    return reader.refuse("has no \"model\"");
  }
  const Json& model = document["model"];
  MINIACC_RETURN_IF_ERROR(reader.check_model(model));
  if (!model.contains("vocab") || !model.contains("merges")) {
    return reader.refuse("model has no vocab or no merges");
  }
  MINIACC_ASSIGN(data.vocabulary, reader.vocabulary(model["vocab"], "model.vocab"));
  MINIACC_ASSIGN(data.merges, reader.merges(model["merges"]));
  if (!DocumentReader::is_typed(document.value("normalizer", Json()), "NFC")) {
    return reader.refuse("normalizer is not NFC, the only one supported", ErrorCode::kUnsupported);
  }
  MINIACC_ASSIGN(data.split_pattern, reader.split_pattern(document));

  const Json added = document.value("added_tokens", Json::array());
  if (!added.is_array()) {
    return reader.refuse("added_tokens is not a list");
  }
  MINIACC_RETURN_IF_ERROR(reader.check_count(added.size()));
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::string name = fmt::format("added_tokens[{}]", i);
    MINIACC_ASSIGN(std::string text, reader.added_token_text(added[i], name));
    if (!added[i].is_object() || !added[i].contains("id")) {
      return reader.refuse(name + " has no id");
    }
    MINIACC_ASSIGN(const std::int32_t id, reader.token_id(added[i]["id"], name + ".id"));
    data.added_tokens.push_back({std::move(text), id});
  }
  return {};
}

Status read_vocabulary_and_merges(const fs::path& vocabulary_path, const fs::path& merges_path,
                                  TokenizerData& data) {
  MINIACC_ASSIGN(const Json document, parse_json(vocabulary_path));
  MINIACC_ASSIGN(data.vocabulary,
                 DocumentReader(vocabulary_path).vocabulary(document, "the vocabulary"));
  MINIACC_ASSIGN(const std::string text, read_file(merges_path));
  const DocumentReader reader(merges_path);
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    end = end == std::string::npos ? text.size() : end;
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    const bool is_header = begin == 0 && line.starts_with("#version");
    if (!line.empty() && !is_header) {
      if (data.merges.size() >= kMaxTokens) {
        return reader.refuse(fmt::format("has more than {} merges", kMaxTokens));
      }
      MINIACC_ASSIGN(BpeMerge merge, reader.merge_line(line, data.merges.size()));
      data.merges.push_back(std::move(merge));
    }
    begin = end + 1;
  }
  data.split_pattern = kQwenSplitPattern;
  return {};
}

/// added_tokens_decoder gives ids; additional_special_tokens (extra_special_tokens in later
/// versions of the format) only texts.
Status read_tokenizer_config(const fs::path& path, TokenizerData& data) {
  MINIACC_ASSIGN(const Json document, parse_json(path));
  const DocumentReader reader(path);
  const Json decoder = document.value("added_tokens_decoder", Json::object());
  if (!decoder.is_object()) {
    return reader.refuse("added_tokens_decoder is not an object");
  }
  MINIACC_RETURN_IF_ERROR(reader.check_count(decoder.size()));
  for (const auto& [key, token] : decoder.items()) {
    const std::string name = fmt::format("added_tokens_decoder[\"{}\"]", key);
    const bool digits =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    MINIACC_ASSIGN(const std::int32_t id,
                   reader.token_id(digits ? Json(std::stoul(key)) : Json(key), name));
    MINIACC_ASSIGN(std::string text, reader.added_token_text(token, name));
    data.added_tokens.push_back({std::move(text), id});
  }
  for (const char* field : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json list = document.value(field, Json());
    if (list.is_null()) {
      continue;
    }
    if (!list.is_array() && !list.is_object()) {  // an object names each token's role
      return reader.refuse(fmt::format("{} is a {}, wanted a list", field, list.type_name()));
    }
    MINIACC_RETURN_IF_ERROR(reader.check_count(list.size()));
    for (const Json& token : list) {
      MINIACC_ASSIGN(std::string text, reader.added_token_text(token, field));
      data.unnumbered_tokens.push_back(std::move(text));
    }
  }
  return {};
}

}  // namespace

Result<TokenizerData> read_tokenizer_data(const fs::path& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  if (!is_folder && !path_exists(path)) {
    return fail(ErrorCode::kNotFound, fmt::format("{}: no such tokenizer", path.string()));
  }
  const fs::path folder = is_folder ? path : path.parent_path();
  const fs::path tokenizer_json = is_folder ? folder / "tokenizer.json" : path;
  TokenizerData data;
  data.source = path.string();
  if (path_exists(tokenizer_json)) {
    MINIACC_RETURN_IF_ERROR(read_tokenizer_json(tokenizer_json, data));
  } else if (path_exists(folder / "vocab.json") && path_exists(folder / "merges.txt")) {
    MINIACC_RETURN_IF_ERROR(
        read_vocabulary_and_merges(folder / "vocab.json", folder / "merges.txt", data));
  } else {
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: has neither tokenizer.json nor vocab.json with merges.txt",
                            path.string()));
  }
  if (path_exists(folder / "tokenizer_config.json")) {
    MINIACC_RETURN_IF_ERROR(read_tokenizer_config(folder / "tokenizer_config.json", data));
  }
  return data;
}

}  // namespace miniacc
