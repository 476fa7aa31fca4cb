#include "fiber.h"

#include <cstdint>
#include <cstring>

#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulation {

#ifdef __x86_64__

// Saves what a called function must preserve, stores the stack pointer in *from, continues at `to`.
extern "C" void cuda_emulation_switch(void** from, void* to);
asm(R"(
.text
.globl cuda_emulation_switch
.type cuda_emulation_switch, @function
cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_emulation_switch, .-cuda_emulation_switch
.globl cuda_emulation_begin
.type cuda_emulation_begin, @function
cuda_emulation_begin:
  movq %r12, %rdi
  callq *%r13
  ud2
.size cuda_emulation_begin, .-cuda_emulation_begin
)");
extern "C" void cuda_emulation_begin();

Fiber::Fiber(std::byte* stack, void (*entry)(void*), void* argument)
    : stack_(stack), entry_(entry), argument_(argument) {
  // As if the fiber had called cuda_emulation_switch: six saved registers (r15 first) and a return
  // address. Behind these seven words the stack is 16-byte aligned, as before any call.
  auto** top = reinterpret_cast<void**>(stack_ + kStackBytes - 72);
  top[0] = nullptr;                                 // r15
  top[1] = nullptr;                                 // r14
  top[2] = reinterpret_cast<void*>(&Fiber::start);  // r13
  top[3] = this;                                    // r12
  top[4] = nullptr;                                 // rbx
  top[5] = nullptr;                                 // rbp
  top[6] = reinterpret_cast<void*>(&cuda_emulation_begin);
  top[7] = nullptr;
  static_assert(kStackBytes % 16 == 0);
  own_ = top;
}

Fiber::~Fiber() = default;

namespace {
void switch_context(void*& from, void* to) { cuda_emulation_switch(&from, to); }
}  // namespace

#else

Fiber::Fiber(std::byte* stack, void (*entry)(void*), void* argument)
    : stack_(stack), entry_(entry), argument_(argument) {
  auto* own = new ucontext_t;
  own_ = own;
  caller_ = new ucontext_t;
  getcontext(own);
  own->uc_stack.ss_sp = stack_;
  own->uc_stack.ss_size = kStackBytes;
  own->uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext passes ints.
  makecontext(
      own, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
        start(reinterpret_cast<void*>((static_cast<std::uintptr_t>(high) << 16 << 16) | low));
      }),
      2, static_cast<unsigned>(self >> 16 >> 16), static_cast<unsigned>(self));
}

Fiber::~Fiber() {
  delete static_cast<ucontext_t*>(own_);
  delete static_cast<ucontext_t*>(caller_);
}

namespace {
void switch_context(void*& from, void* to) {
  swapcontext(static_cast<ucontext_t*>(from), static_cast<ucontext_t*>(to));
}
}  // namespace

#endif

void Fiber::start(void* fiber) {
  auto* self = static_cast<Fiber*>(fiber);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
#endif
  self->entry_(self->argument_);
}

void Fiber::resume() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_, kStackBytes);
#endif
  switch_context(caller_, own_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::resume_caller([[maybe_unused]] bool last) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(last ? nullptr : &own_fake_stack_, caller_stack_,
                                 caller_stack_bytes_);
#endif
  switch_context(own_, caller_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
#endif
}

}  // namespace cuda_emulation
