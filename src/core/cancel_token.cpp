#include "core/cancel_token.h"

#include "core/error.h"

namespace miniacc {

void CancelToken::check() const {
  if (cancelled()) {
    throw ErrorException({ErrorCode::kCancelled, "cancelled"});
  }
}

}  // namespace miniacc
