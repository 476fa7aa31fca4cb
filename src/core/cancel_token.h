#pragma once

// The token is part of the public interface; layers include it under its layer's name.
#include "miniacc/cancel_token.h"
