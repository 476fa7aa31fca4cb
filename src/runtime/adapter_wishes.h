#pragma once

#include <string>
#include <vector>

#include "adapters/known_adapters.h"
#include "core/error.h"
#include "miniacc/miniacc.h"

namespace miniacc {

/// What the adapters of a request ask of it.
struct AdapterWishes {
  std::vector<AdapterIdentity> identities;  ///< one for each of request.loras
  std::vector<std::string> notes;           ///< what was applied
  std::vector<std::string> warnings;        ///< what contradicts an adapter, and is done
};

/// Completes a request before anything else looks at it:
///   - `<lora:NAME:WEIGHT>` tags leave the prompt and become request.loras, files of lora_dir;
///   - without request.sampling.recipe, the recipe that the adapters (strength 0 apart) want is
///     filled in. Steps, shifts and sigmas of the request stay, and what contradicts the adapter is
///     a warning.
/// kInvalidArgument names both files when two adapters want different schedules and the request
/// names no recipe. Reads headers of the adapter files, and hashes those that the table may know.
[[nodiscard]] Result<AdapterWishes> apply_adapter_wishes(GenerateRequest& request);

}  // namespace miniacc
