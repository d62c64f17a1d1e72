#!/bin/sh
# Every command once, on the bundled photographs: from a CSV to a dataset, damage, and repair.
#
#     sh samples/walkthrough.sh [FOLDER]
#
# FOLDER (walkthrough, unless named) is made, and must not exist. tfrecorder must be on the PATH.
set -eu

samples=$(cd "$(dirname "$0")" && pwd)
folder=${1:-walkthrough}
mkdir "$folder"
cd "$folder"

step() {
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}

# 1. Look at the table before anything is written, and at every image.
step tfrecorder validate "$samples/photos.csv" --check-images

# 2. Convert. The same command would go on after an interruption.
step tfrecorder convert "$samples/photos.csv" out --num-shards TRAIN=3,VALIDATION=1,TEST=1
step tfrecorder status out

# 3. What is there? As numbers, as a table, as image files, as a page for a browser.
step tfrecorder info out
step tfrecorder inspect out --split TEST --num-records 3 --output-dir look
step tfrecorder preview out --html report.html

# 4. Is every byte as it was written, and does every image decode?
step tfrecorder verify out --decode

# 5. An accident: one byte of a shard changes. verify finds the record, repair writes it again.
shard=out/train-00001-of-00003.tfrecord
cp "$shard" before.tfrecord
printf 'X' | dd of="$shard" bs=1 seek=5000 conv=notrunc 2>/dev/null
if step tfrecorder verify out; then
    echo "the damage was not found" >&2
    exit 1
fi
step tfrecorder repair out
cmp "$shard" before.tfrecord
rm before.tfrecord

# 6. How fast is it read, and would an accelerator with steps of 20 ms wait?
step tfrecorder benchmark out --batch-size 8 --image-size 96 --seconds 1 --step-time 20

echo
echo "All is in $folder/: the dataset in out/, three images in look/, the page in report.html."
