#include "convert_command.h"

#include <memory>

#include "tool_command.h"

namespace miniacc {
namespace {

constexpr const char* kComponentHelp =
    "transformer, text-encoder, video-vae or audio-vae of a model folder (default: all)";

}  // namespace

void add_convert_command(CLI::App& app, const CancelToken& cancel, int& status) {
  struct Flags {
    ConvertRequest request;
    ToolFlags tool;
  };
  auto flags = std::make_shared<Flags>();
  ConvertRequest& request = flags->request;
  CLI::App* command =
      app.add_subcommand("convert", "Write a model or one of its parts in another layout");
  command->add_option("input", request.input, "Model folder, or folder or file of one part")
      ->required();
  command
      ->add_option("output", request.output,
                   "Folder to make; for one part as a single file, that file")
      ->required();
  command->add_option("--to", request.to, "official, diffusers, comfy, comfy-pruned or gguf")
      ->required();
  command->add_option("--dtype", request.dtype,
                      "bf16, f32, f16; comfy also fp8_scaled, int8_convrot; gguf also q8_0, q4_0, "
                      "q4_k (default: as stored, q8_0 for gguf)");
  command->add_option("--component", request.component, kComponentHelp);
  command->add_option("--rank", request.rank, "Columns of the curve table of comfy-pruned")
      ->capture_default_str();
  command
      ->add_option("--max-rel-resid", request.max_rel_resid,
                   "Largest relative residual of a layer that comfy-pruned may have")
      ->capture_default_str();
  command->add_flag("--overwrite", request.overwrite, "Replace an existing output file");
  add_tool_flags(*command, flags->tool);
  command->callback([flags, &cancel, &status] {
    status = run_tool(flags->tool, [&](const EventSink& events) {
      return convert_model(flags->request, events, cancel);
    });
  });
}

void add_quantize_command(CLI::App& app, const CancelToken& cancel, int& status) {
  struct Flags {
    QuantizeRequest request;
    ToolFlags tool;
  };
  auto flags = std::make_shared<Flags>();
  QuantizeRequest& request = flags->request;
  CLI::App* command = app.add_subcommand(
      "quantize", "Write int8 weights in ComfyUI's form and measure what that does to each layer");
  command
      ->add_option("input", request.input,
                   "Unquantised model folder, or folder or file of a transformer or text encoder")
      ->required();
  command->add_option("output", request.output, "Folder to make; for one part, a .safetensors file")
      ->required();
  command->add_option("--component", request.component, kComponentHelp);
  command
      ->add_option("--rotation-group", request.rotation_group,
                   "Columns that are rotated together, a power of 4; 0: no rotation")
      ->capture_default_str();
  command->add_flag("--overwrite", request.overwrite, "Replace an existing output file");
  add_tool_flags(*command, flags->tool);
  command->callback([flags, &cancel, &status] {
    status = run_tool(flags->tool, [&](const EventSink& events) {
      return quantize_model(flags->request, events, cancel);
    });
  });
}

}  // namespace miniacc
