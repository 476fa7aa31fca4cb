#!/usr/bin/env bash
# One GPU run of at most nine and a half minutes: gpu_session.sh RUN OUT
#   1  video VAE, on from the state in .train/ or else from the exported model
#   2  text encoder and transformer on its latents, first frames included
#   3  video decoder and four-step adapter side by side, then the evaluation
# State is read from and written to .train/ in the repository's root (TRAIN_STATE). What the next run needs
# is copied to OUT all the while, so that a run that is killed leaves something; put it into .train/ again.
# MINUTES: length of training. SMOKE=1: two steps of two clips, no evaluation.
set -eu
run=${1:-}
case $run in
1 | 2 | 3) ;;
*)
  echo "gpu_session.sh: no run '$run'; there are 1, 2 and 3: gpu_session.sh RUN OUT" >&2
  exit 2
  ;;
esac
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")"
state=${TRAIN_STATE:-$(cd ../.. && pwd)/.train}
model=../../models/h3-tiny
python=${PYTHON:-python3}
mkdir -p "$state"

deliver() {  # NAME...: copies state files to OUT; each appears there whole
  for name in "$@"; do
    for file in "$state/$name"*; do
      case $file in *.part | *"*") continue ;; esac
      cp "$file" "$out/.copy" && mv "$out/.copy" "$out/$(basename "$file")"
    done
  done
}

deliver_all_the_while() {  # NAME...: and once more at the end, whatever it is
  delivered=("$@")
  (while sleep 20; do deliver "$@"; done) &
  copier=$!
  trap stop_delivering EXIT
}

stop_delivering() {
  trap - EXIT
  kill $copier 2>/dev/null || true
  wait $copier 2>/dev/null || true
  deliver "${delivered[@]}"
}

train() {  # SCRIPT MINUTES FLAGS...; pauses (SIGSTOP) are made up for, 0.4 minutes at most
  script=$1 minutes=$2
  shift 2
  [ -z "${SMOKE:-}" ] || set -- "$@" --max-steps 2 --batch 2
  wall=$("$python" -c "print($minutes + 0.4)")
  "$python" "$script" --state "$state" --minutes "$minutes" --wall-minutes "$wall" "$@"
}

evaluate() {  # ROW...
  [ -z "${SMOKE:-}" ] || return 0
  "$python" quick_evaluation.py --state "$state" --tokenizer $model/tokenizer --rows "$@" | tee "$out/evaluation-$run.log"
}

missing=
for part in video_vae audio_vae base; do
  ls "$state/$part"-0.safetensors >/dev/null 2>&1 || missing="$missing $part"
done
[ -z "$missing" ] || "$python" restore.py --model $model --state "$state" --only $missing

case $run in
1)
  deliver_all_the_while video_vae
  train train_video_vae.py "${MINUTES:-8.3}" --resume --hard-share 0.3 --shape-weight 8 --kl 1e-4 --rate 0.7
  stop_delivering
  evaluate reconstructed
  ;;
2)
  "$python" compact.py --state "$state"
  deliver video_vae-
  deliver_all_the_while base dit.log
  train train_dit.py "${MINUTES:-8.0}" --resume --tokenizer $model/tokenizer --hard-share 0.1 \
    ${SMOKE:+--clips-scale 0.0002 --no-compile}
  stop_delivering
  evaluate base-49 first-base-49
  ;;
3)
  failed=
  deliver_all_the_while video_vae- video_decoder.log adapter distill.log
  train train_video_decoder.py "${MINUTES:-7.0}" --hard-share 0.2 --shape-weight 4 &
  decoder=$!
  train distill.py "${MINUTES:-7.0}" --tokenizer $model/tokenizer ${SMOKE:+--trajectories-scale 0.0005} ||
    failed="adapter"
  wait $decoder || failed="$failed decoder"
  stop_delivering
  evaluate reconstructed base-49 adapter-4 base-4 first-base-49 first-adapter-4
  [ -z "$failed" ] || { echo "gpu_session.sh: the training of the $failed failed" >&2; exit 1; }
  ;;
esac
ls -l "$out"
