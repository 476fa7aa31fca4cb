#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/adapter_names.h"
#include "adapters/adapter_scale.h"
#include "adapters/convert_adapter.h"
#include "io/tensor_file.h"
#include "io/tensor_writer.h"

namespace miniacc {

/// Converts one adapter step by step; private to the layer. Problems are collected in the report;
/// each step works on what is left.
class AdapterConverter {
 public:
  AdapterConverter(TensorFile file, const ConvertAdapterOptions& options);

  /// Reads, checks and compares. An Error means that the file could not be read to its end.
  [[nodiscard]] Status prepare();
  /// Writes what prepare() has planned. Only without problems.
  [[nodiscard]] Status write(const std::filesystem::path& out);
  [[nodiscard]] AdapterConversion& report() { return report_; }

 private:
  using ModuleKey = std::pair<std::string, int>;  ///< canonical module, part or -1
  struct Module {
    AdapterName name;
    std::map<AdapterRole, const TensorEntry*> tensors;
    double scale = 1.0;
    [[nodiscard]] const TensorEntry* find(AdapterRole role) const;
    [[nodiscard]] int part() const { return name.qkv_part.value_or(-1); }
    [[nodiscard]] const std::string& example() const { return tensors.begin()->second->name; }
  };
  using Indices = std::vector<std::int64_t>;
  /// Rows and columns of one source tensor and where they go.
  struct Piece {
    const TensorEntry* entry = nullptr;
    Indices rows = {};     ///< stored row of each output row; empty: all, in order
    Indices columns = {};  ///< the same for columns
    std::int64_t at_row = 0;
    std::int64_t at_column = 0;
    double factor = 1.0;  ///< other than 1: multiplied in f64 and rounded once
  };
  struct Output {
    TensorSpec spec;
    std::string key;  ///< module, part and role: what a twin is compared by
    std::vector<Piece> pieces;
    double value = 0.0;  ///< of an alpha tensor, which has no piece
  };

  // Reading, in adapter_converter.cpp.
  void problem(std::string text);
  void read_names();
  void add_name(const TensorEntry& entry, const AdapterName& name);
  void choose_partition();
  void check_vocabulary();
  void match_model();
  void check_modules();
  void check_pair(const Module& module);
  void check_shapes(const Module& module);
  void check_triples();
  [[nodiscard]] Status check_values();
  [[nodiscard]] Status choose_scales();
  [[nodiscard]] const Shape* model_shape(const std::string& name) const;

  // Writing, in adapter_converter_outputs.cpp.
  [[nodiscard]] Status plan_outputs();
  void plan_fused(const std::string& module);
  [[nodiscard]] Status plan_split(const Module& module);
  void plan_same(const Module& module);
  void push_alpha(const std::string& module, int part, double scale, std::int64_t rank);
  void push(const std::string& module, int part, AdapterRole role, DType dtype, const Shape& shape,
            std::vector<Piece> pieces);
  /// The stored row of each row in [Q;K;V] and in the target's order of halves; empty where that is
  /// the order they are stored in.
  [[nodiscard]] Indices target_rows(const Module& module, std::int64_t num_rows) const;
  [[nodiscard]] Result<std::array<Indices, 3>> compacted(const TensorEntry& up,
                                                         const Indices& rows) const;
  [[nodiscard]] Result<std::vector<std::byte>> make(const Output& output) const;
  [[nodiscard]] Status compare();
  [[nodiscard]] std::map<std::string, std::string> output_metadata() const;
  [[nodiscard]] Status check_cancelled() const;
  [[nodiscard]] std::int64_t head_dim(const Module& module) const;

  TensorFile file_;
  const ConvertAdapterOptions& options_;
  AdapterConversion report_;
  std::map<ModuleKey, Module> modules_;
  std::set<AdapterVocabulary> vocabularies_;
  bool interleaved_qkv_ = false;
  std::vector<Output> outputs_;
};

/// One key for a tensor of an adapter, whatever its prefix and suffix are spelt like.
[[nodiscard]] std::string adapter_key(const std::string& module, int part, AdapterRole role);
/// f64, f32, f16 or bf16.
[[nodiscard]] bool is_adapter_dtype(DType dtype);

}  // namespace miniacc
