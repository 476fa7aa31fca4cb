#include "checkpoint/component.h"

#include "core/error.h"

namespace miniacc {

std::string_view component_name(Component component) {
  switch (component) {
    case Component::kTransformer:
      return "transformer";
    case Component::kTextEncoder:
      return "text encoder";
    case Component::kVideoVae:
      return "video VAE";
    case Component::kAudioVae:
      return "audio VAE";
  }
  MINIACC_REQUIRE(false, "component_name: unknown component");
}

std::string component_phrase(Component component) {
  const std::string article = component == Component::kAudioVae ? "an " : "a ";
  return article + std::string(component_name(component));
}

std::string_view component_option(Component component) {
  switch (component) {
    case Component::kTransformer:
      return "--diffusion-model";
    case Component::kTextEncoder:
      return "--text-encoder";
    case Component::kVideoVae:
      return "--vae";
    case Component::kAudioVae:
      return "--audio-vae";
  }
  MINIACC_REQUIRE(false, "component_option: unknown component");
}

std::string_view naming_name(Naming naming) {
  switch (naming) {
    case Naming::kOfficial:
      return "official";
    case Naming::kDiffusers:
      return "diffusers";
    case Naming::kComfy:
      return "comfy";
    case Naming::kLlamaCpp:
      return "llama.cpp";
  }
  MINIACC_REQUIRE(false, "naming_name: unknown naming");
}

}  // namespace miniacc
