#!/bin/sh
# The main commands, on the bundled photographs: from a CSV to a dataset, then damage and repair.
#
#     sh samples/walkthrough.sh [FOLDER]
#
# FOLDER is created (default: walkthrough) and must not exist yet. tfrecorder must be on the PATH.
set -eu

samples=$(cd "$(dirname "$0")" && pwd)
folder=${1:-walkthrough}
mkdir "$folder"
cd "$folder"

step() {
    printf '\n\033[1m$ %s\033[0m\n' "$*"
    "$@"
}

# 1. Before anything is written, check the table and every image.
step tfrecorder validate "$samples/photos.csv" --check-images

# 2. Convert. After an interruption, the same command would continue.
step tfrecorder convert "$samples/photos.csv" out --num-shards TRAIN=3,VALIDATION=1,TEST=1
step tfrecorder status out

# 3. Look at the dataset: as numbers, as a table, as image files, and as a page in a browser.
step tfrecorder info out
step tfrecorder inspect out --split TEST --num-records 3 --output-dir look
step tfrecorder preview out --html report.html

# 4. Check that every byte is as it was written, and that every image decodes.
step tfrecorder verify out --decode

# 5. Damage one byte of a shard. verify finds the record, and repair writes it again.
shard=out/train-00001.tfrecord
cp "$shard" before.tfrecord
printf 'X' | dd of="$shard" bs=1 seek=5000 conv=notrunc 2>/dev/null
if step tfrecorder verify out; then
    echo "the damage was not found" >&2
    exit 1
fi
step tfrecorder repair out
cmp "$shard" before.tfrecord
rm before.tfrecord

# 6. Measure how fast it is read, and whether an accelerator with steps of 20 ms would wait.
step tfrecorder benchmark out --batch-size 8 --image-size 96 --seconds 1 --step-ms 20

echo
echo "In $folder/: the dataset in out/, three images in look/, and the page report.html."
