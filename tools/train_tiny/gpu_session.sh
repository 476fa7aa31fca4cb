#!/usr/bin/env bash
# One GPU run of at most ten minutes, from the repository's root or anywhere: gpu_session.sh RUN OUT
#   RUN 1: video VAE, from the state in .train/ or else from the exported model.
# State is read from and written to .train/ (TRAIN_STATE); what the next run needs is copied to OUT all the
# while, so that a run that is killed leaves something. MINUTES: length of training. Everything else after
# these two arguments goes to the training stages (--max-steps 2 --batch 2 for a smoke test).
set -eu
run=$1 out=$2
shift 2
cd "$(dirname "$0")"
out=$(cd - >/dev/null && mkdir -p "$out" && cd "$out" && pwd)
state=${TRAIN_STATE:-$(cd ../.. && pwd)/.train}
model=../../models/h3-tiny
python=${PYTHON:-python3}
minutes=${MINUTES:-8.3}
wall=${WALL_MINUTES:-$("$python" -c "print($minutes + 0.4)")}  # pauses count here
mkdir -p "$state"

deliver() {  # NAME...: copies state files to OUT; each appears there whole
  for name in "$@"; do
    for file in "$state/$name"*; do
      [ -e "$file" ] || continue
      case $file in *.part) continue ;; esac
      cp "$file" "$out/.copy" && mv "$out/.copy" "$out/$(basename "$file")"
    done
  done
}

deliver_all_the_while() {
  while sleep 20; do deliver "$@"; done
}

have() { ls "$state/$1"-0.safetensors >/dev/null 2>&1; }

missing=
for part in video_vae audio_vae base; do have $part || missing="$missing $part"; done
[ -z "$missing" ] || "$python" restore.py --model $model --state "$state" --only $missing

case $run in
1)
  deliver_all_the_while video_vae &
  copier=$!
  trap 'kill $copier 2>/dev/null || true' EXIT
  "$python" train_video_vae.py --minutes "$minutes" --wall-minutes "$wall" --resume --state "$state" \
    --hard-share 0.3 --shape-weight 8 --kl 1e-4 --rate 0.7 "$@"
  deliver video_vae
  "$python" quick_evaluation.py --state "$state" --tokenizer $model/tokenizer --rows reconstructed \
    | tee "$out/reconstructed.log"
  ;;
*)
  echo "gpu_session.sh: no run '$run'; there is 1" >&2
  exit 2
  ;;
esac
ls -l "$out"
