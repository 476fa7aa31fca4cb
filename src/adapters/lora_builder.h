#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter_names.h"
#include "adapters/adapter_scale.h"
#include "adapters/lora.h"

namespace miniacc {

/// Builds a Lora step by step; private to the layer. Each step leaves what the next one reads.
class LoraBuilder {
 public:
  LoraBuilder(const WeightSource& base, const LoraRequest& request, bool allow_partial,
              TensorFile file);
  [[nodiscard]] Result<Lora> build();

 private:
  /// The tensors of one module, or of one of q, k, v.
  struct Module {
    AdapterName name;
    std::map<AdapterRole, const TensorEntry*> tensors;
    [[nodiscard]] const TensorEntry* find(AdapterRole role) const;
  };
  using ModuleKey = std::pair<std::string, int>;  ///< canonical module, part or -1

  [[nodiscard]] const TensorFile& file() const { return lora_.file_; }
  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what,
                                             ErrorCode code = ErrorCode::kInvalidInput) const;

  [[nodiscard]] Status read_names();
  [[nodiscard]] Status add_name(const TensorEntry& entry, const AdapterName& name);
  [[nodiscard]] Status check_vocabulary() const;
  [[nodiscard]] Status refuse_head_banks() const;
  /// Drops modules that the checkpoint lacks or cannot take; decides whether that is an error.
  [[nodiscard]] Status match_modules();
  [[nodiscard]] Status add_module(const Module& module);
  [[nodiscard]] Status add_pair(const Module& module, const Shape& target, LoraDelta delta);
  [[nodiscard]] Status add_dense(const Module& module, AdapterRole role, LoraDelta delta);
  [[nodiscard]] Status place_rows(const Module& module, const Shape& target,
                                  LoraDelta& delta) const;
  [[nodiscard]] Result<std::optional<double>> read_alpha(const Module& module) const;
  [[nodiscard]] Status choose_alpha_rule();
  [[nodiscard]] Status read_values();
  void finish_report();

  const WeightSource& base_;
  LoraRequest request_;
  bool allow_partial_;
  Lora lora_;
  std::map<ModuleKey, Module> modules_;
  std::set<AdapterVocabulary> vocabularies_;
  bool interleaved_qkv_ = false;
  std::vector<std::string> unmatched_;
  std::vector<std::string> rejected_;
  AlphaRule rule_;
};

}  // namespace miniacc
