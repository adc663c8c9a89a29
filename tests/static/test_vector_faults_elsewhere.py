"""Faults found in the tools people make word vectors and ELMo with today, and which of our tests keeps each of them out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fault_lists import listed, require_tests

# A fault and what must hold instead; below it, the tests that hold it. First what people complain of, by the first of its issues;
# then the traps met while the tools were measured; then public bugs by their number; at last what else was found in issues.
FAULTS = """
gensim#2880 a text of any length is trained on whole
  static/test_corpus_faults.py::test_a_text_of_100_000_words_in_one_line_is_trained_on_whole
  static/test_word_tokens.py::test_a_line_of_any_length_stays_whole
  static/test_word2vec.py::test_a_line_of_a_whole_corpus_has_all_of_its_pairs_but_those_across_blocks
  static/test_word2vec.py::test_every_word_is_a_centre_once_an_epoch_whatever_the_lines
gensim#2693 each word is trained on once an epoch by any number of threads, and what is read, kept and trained adds up
  static/test_corpus_faults.py::test_words_read_kept_and_trained_add_up_for_any_number_of_threads
  static/test_word2vec.py::test_every_word_is_a_centre_once_an_epoch_whatever_the_lines
  static/test_word2vec.py::test_blocks_hold_whole_lines_and_all_words
  static/test_word2vec.py::test_progress_ends_at_all_words_of_all_epochs
gensim#1509 threads work at the same time whatever the lines (how much faster they are, no test tells)
  static/test_training_faults.py::test_threads_work_at_the_same_time_whatever_the_lines
  static/test_training_faults.py::test_compiled_loops_do_not_hold_the_interpreter
gensim#801 what can be read but once is trained on in every epoch; nothing to train on, or no thread, is an error
  static/test_corpus_faults.py::test_lines_that_come_but_once_are_trained_on_in_every_epoch
  static/test_corpus_faults.py::test_no_thread_is_an_error_and_never_a_model_that_was_not_trained
  cli/test_vectors_options.py::test_an_option_below_what_makes_sense_is_refused_before_any_work
  static/test_word2vec.py::test_a_corpus_without_words_is_refused
  static/test_glove.py::test_a_corpus_without_pairs_is_refused
gensim#2795 words with spaces are refused or written otherwise, and read from files that have them
  static/test_vector_writers.py::test_words_that_a_file_would_tear_apart_are_refused_by_name_or_get_underscores
  static/test_vector_writers.py::test_underscores_that_make_two_words_equal_are_refused
  static/test_vector_files.py::test_a_word_is_everything_before_the_last_numbers
  static/test_vector_writers.py::test_we_read_what_gensim_writes
gensim#567 line feeds between records are found out; broken UTF-8 is replaced and counted
  static/test_foreign_vectors.py::test_the_first_letter_of_a_word_stays_whether_line_feeds_part_the_records_or_not
  static/test_vector_files.py::test_the_content_tells_the_format_whatever_the_name
  static/test_vector_files.py::test_broken_utf8_is_replaced_and_counted
  static/test_foreign_vectors.py::test_words_that_were_cut_apart_and_became_equal_are_one_row
gensim#2735 a loss is that of its epoch, exact after any number of words and with any number of threads
  static/test_training_faults.py::test_the_loss_of_a_long_run_is_exact
  static/test_training_faults.py::test_a_loss_is_that_of_its_epoch_alone
  static/test_word2vec.py::test_words_of_one_context_become_alike_and_the_loss_falls
gensim#361 distinct words are counted exactly in bounded memory, and as many stay as were asked for
  static/test_word_tokens.py::test_every_frequent_word_is_kept_in_its_line_and_rare_ones_are_left_out
  static/test_corpus_faults.py::test_distinct_words_beyond_the_limit_cost_no_memory
  cli/test_vectors_options.py::test_the_most_frequent_words_are_exactly_as_many_as_asked_for
  cli/test_vectors_options.py::test_a_limit_takes_exactly_so_many_words
gensim#2519 training never goes on with other words (words can't be added to vectors: not built)
  static/test_word2vec.py::test_a_checkpoint_of_another_training_is_refused
  static/test_static_checkpoint.py::test_another_training_is_told_what_differs
  static/test_static_checkpoint.py::test_tables_of_another_shape_are_refused_before_any_is_filled
gensim#662 a seed and one thread give the same vectors in every process
  static/test_training_faults.py::test_one_seed_gives_the_same_vectors_in_every_process
  static/test_word2vec.py::test_each_seed_gives_other_vectors_and_one_seed_the_same
  cli/test_vectors_command.py::test_one_thread_gives_the_same_vectors_again
gensim#1873 whether the gradient of a window is divided by its words is a setting, and the default that of the authors' program
  static/test_training_faults.py::test_the_gradient_of_a_cbow_window_is_divided_by_its_words_where_that_is_asked_for
  static/test_word2vec_loops.py::test_so_they_do_when_the_gradient_is_averaged
fastText#327 white space of every kind separates, no word is empty, and others read what is written
  static/test_corpus_faults.py::test_no_word_is_empty_or_holds_white_space_of_any_kind
  static/test_corpus_faults.py::test_white_space_of_any_kind_separates_in_a_file_and_what_is_written_is_read_by_others
  static/test_split.py::test_split_text_is_taken_as_it_stands
  static/test_vector_files.py::test_a_word_is_everything_before_the_last_numbers
GloVe#99 gradients are cut; a cost that is no number ends training with advice, and the last good checkpoint stays
  static/test_training_faults.py::test_glove_that_ends_in_nan_keeps_the_last_good_checkpoint
  static/test_training_faults.py::test_word2vec_that_ends_in_nan_keeps_the_last_good_checkpoint
  static/test_training_faults.py::test_gloves_gradients_are_cut_at_a_hundred_as_in_the_authors_program
  static/test_glove.py::test_a_last_update_that_is_no_number_is_seen_too
  cli/test_vectors_options.py::test_training_that_ends_in_nan_says_what_to_do_and_leaves_no_vectors
GloVe#14 thirty words and two dimensions are enough for every trainer
  static/test_corpus_faults.py::test_thirty_words_and_two_dimensions_are_enough_for_every_trainer
  static/test_glove.py::test_GloVe14_a_tiny_vocabulary_and_dimension_give_numbers
  static/test_word2vec_loops.py::test_so_they_do_with_one_word_or_two
GloVe#32 <unk> is a word like any other, in texts and in files; rows of the 840B file are read from the right
  static/test_corpus_faults.py::test_marks_that_other_tools_reserve_are_words_like_any_other
  static/test_corpus_faults.py::test_in_running_text_such_marks_are_the_word_within
  static/test_vector_files.py::test_a_header_that_counts_wrongly_is_told_and_the_rows_are_trusted
  static/test_vector_files.py::test_a_word_is_everything_before_the_last_numbers
trap1 however a loop is written for speed, it computes what its plain twin does
  static/test_word2vec_loops.py::test_loops_equal_the_specification
  static/test_glove.py::test_the_compiled_update_is_the_plain_one
  static/test_vector_files.py::test_the_compiled_reader_is_the_plain_one
trap2 eight numbers at once are what NumPy has, for any dimension
  static/test_vector_code.py::test_every_operation_is_that_of_numpy
  static/test_vector_code.py::test_the_sigmoid_is_exact_to_the_last_bits_of_float32_and_flat_beyond_thirty
  static/test_word2vec_loops.py::test_loops_equal_the_specification
trap3 the kernels run without AVX and FMA (ARM: not tested)
  static/test_vector_code.py::test_it_runs_on_a_processor_without_vector_extensions
trap4 what needs no loop waits for no compiler
  cli/test_commands.py::test_help_imports_nothing_heavy
trap5 a negative that is the centre itself is left out; what a window has twice counts twice
  static/test_word2vec.py::test_before_training_the_loss_is_that_of_a_coin_for_each_target
  static/test_word2vec_loops.py::test_so_they_do_with_any_number_of_negatives
  static/test_word2vec_loops.py::test_so_they_do_with_one_word_or_two
trap6 as many epochs are trained as were asked for; none is refused; words are whole
  static/test_word2vec.py::test_every_word_is_a_centre_once_an_epoch_whatever_the_lines
  static/test_corpus_faults.py::test_words_read_kept_and_trained_add_up_for_any_number_of_threads
  cli/test_vectors_options.py::test_a_setting_beyond_its_limits_is_refused_by_name_before_any_work
  static/test_corpus_faults.py::test_B141_a_word_is_in_the_vocabulary_once_and_whole_however_long_it_is
trap7 no text is lost between counting and training
  static/test_corpus_faults.py::test_a_text_of_100_000_words_in_one_line_is_trained_on_whole
  static/test_corpus_faults.py::test_words_read_kept_and_trained_add_up_for_any_number_of_threads
  static/test_corpus_faults.py::test_no_word_is_empty_or_holds_white_space_of_any_kind
trap8 lines end at LF, CR and CRLF alone, words at any white space, and NULs are no characters
  text/test_reader.py::test_B001_only_real_newlines_end_a_line
  text/test_reader.py::test_crlf_and_lone_cr_end_a_line_wherever_the_chunks_part
  static/test_corpus_faults.py::test_white_space_of_any_kind_separates_in_a_file_and_what_is_written_is_read_by_others
  static/test_split.py::test_lines_of_running_text_are_those_of_each_line_alone
trap9 work is cut by words, never by lines; long lines are read in parts that end at white space
  static/test_split.py::test_a_text_cut_into_parts_has_the_same_words_and_as_many_lines_or_more
  static/test_word2vec.py::test_blocks_hold_whole_lines_and_all_words
  static/test_corpus_faults.py::test_a_text_of_100_000_words_in_one_line_is_trained_on_whole
trap10 one thread gives the same bits again, stopped and resumed too
  static/test_training_faults.py::test_one_seed_gives_the_same_vectors_in_every_process
  static/test_word2vec.py::test_training_stopped_between_any_two_blocks_and_resumed_is_bit_identical
  static/test_glove.py::test_a_run_stopped_anywhere_ends_bit_identical
trap11 memory is bounded, and what is put aside changes nothing
  static/test_corpus_faults.py::test_distinct_words_beyond_the_limit_cost_no_memory
  static/test_pairs.py::test_putting_aside_changes_nothing_at_all
  static/test_pairs.py::test_counts_are_those_of_brute_force_however_often_memory_was_full
trap12 GloVe's steps are those of the authors' program, by hand
  static/test_glove.py::test_one_update_is_that_of_a_hand
  static/test_training_faults.py::test_gloves_gradients_are_cut_at_a_hundred_as_in_the_authors_program
  static/test_glove.py::test_the_compiled_update_is_the_plain_one
trap13 a header that is wrong by one is told, and the rows are trusted
  static/test_vector_files.py::test_a_header_that_counts_wrongly_is_told_and_the_rows_are_trusted
trap14 every format is read, headed or not, cut or not; other floats and pickles are refused with advice
  static/test_vector_files.py::test_the_content_tells_the_format_whatever_the_name
  static/test_vector_files.py::test_a_line_that_is_no_row_is_named
  static/test_vector_files.py::test_a_binary_file_that_was_cut_off_names_record_and_byte
  static/test_foreign_vectors.py::test_files_of_other_floats_are_refused_with_a_hint
  static/test_foreign_vectors.py::test_what_gensim_saves_in_its_own_way_is_refused_with_the_way_out
  static/test_foreign_vectors.py::test_no_pickle_is_ever_opened_whatever_its_protocol
  static/test_vector_files.py::test_what_would_have_to_be_unpickled_or_is_no_such_file_is_refused_with_advice
trap15 a window's words get the whole error by default, or its mean where that is asked for
  static/test_training_faults.py::test_the_gradient_of_a_cbow_window_is_divided_by_its_words_where_that_is_asked_for
trap16 the rate falls by words, over all epochs and whatever the blocks
  static/test_training_faults.py::test_the_rate_falls_in_a_line_over_the_words_of_all_epochs
  static/test_word2vec_loops.py::test_so_they_do_in_blocks
trap17 negatives are drawn from a small table, each word as often as it should be
  static/test_sampling.py::test_the_alias_table_draws_each_word_by_its_power
B012 NULs are removed and counted, and a line of the vocabulary is a word
  static/test_corpus_faults.py::test_B012_nuls_are_removed_and_counted_and_every_line_of_the_vocabulary_is_a_word
  text/test_reader.py::test_B012_nuls_are_removed_and_counted
  cli/test_vectors_command.py::test_what_was_not_taken_as_text_is_told
B105 no pair counts zero, so no logarithm is infinite
  static/test_training_faults.py::test_B105_no_pair_is_counted_as_zero_however_far_apart_its_words_are
  static/test_pairs.py::test_wide_windows_are_as_exact_as_their_unit
B137 what is written is read back exactly, and a word that would not be is refused by name
  static/test_vector_writers.py::test_what_is_written_is_read_back_to_the_bit
  static/test_vector_writers.py::test_words_that_a_file_would_tear_apart_are_refused_by_name_or_get_underscores
  static/test_static_folder.py::test_a_folder_gives_back_what_was_put_into_it
B141 a word has one row, whole; of equal rows in a file the first stays, and they are counted
  static/test_corpus_faults.py::test_B141_a_word_is_in_the_vocabulary_once_and_whole_however_long_it_is
  static/test_vector_files.py::test_the_first_of_equal_words_stays_and_nameless_rows_go
  static/test_vector_files.py::test_a_word_is_known_again_however_far_away_it_was
  static/test_vector_files.py::test_words_of_any_length_are_read
B192 an ELMo's vectors are those of their text alone, whatever was read before and beside it
  inference/test_elmo_vectors.py::test_B192_a_line_s_vector_is_the_same_whatever_lines_were_read_before_it_and_beside_it
  nn/test_recurrent.py::test_nothing_is_kept_from_batch_to_batch
  nn/test_recurrent.py::test_a_sequence_never_sees_its_neighbours_their_number_or_their_order
allennlp#837 a text of nothing, or of one word, is no accident for an ELMo
  inference/test_elmo_vectors.py::test_a_text_of_nothing_or_of_one_word_is_no_accident
bilm-tf#75 a text with fewer words than the table has room for is learned from
  objectives/test_bilm.py::test_it_learns_and_the_mix_of_layers_stands_still
bilm-tf#145 words have the same numbers in training and in use
  train/test_elmo_runs.py::test_the_folder_knows_words_and_pieces_and_goes_on_where_the_run_ended
  nn/test_characters.py::test_a_words_vector_is_the_one_worked_by_hand_for_short_long_and_too_long_words
gensim#804 no word of a question is its answer, and of spellings that differ in capitals one is meant
  static/test_foreign_vectors.py::test_no_word_of_a_question_is_its_answer_and_neither_is_another_spelling_of_it
  measure/test_word_measures.py::test_analogies_by_hand
  measure/test_word_measures.py::test_analogies_are_gensim_s
  static/test_word_counts.py::test_a_word_is_found_at_its_place_and_without_capitals_at_the_most_frequent_spelling
gensim#1934 pairs and questions without vectors are counted, and shown beside the score
  measure/test_word_measures.py::test_similarity_by_hand
  measure/test_word_measures.py::test_similarity_is_scipy_s_and_gensim_s
  cli/test_vectors_options.py::test_how_many_pairs_and_questions_had_vectors_is_shown_beside_the_score
gensim#2014 looking up and measuring change nothing
  static/test_foreign_vectors.py::test_looking_words_up_and_measuring_change_nothing
gensim#2059 n-grams are hashed by their bytes as fastText does, outside of ASCII too
  static/test_ngrams.py::test_n_grams_and_hash_are_those_of_fasttext
gensim#2402 words that are equal once their broken bytes are replaced are one row, and the rows behind them stay right
  static/test_foreign_vectors.py::test_words_that_were_cut_apart_and_became_equal_are_one_row
gensim#2763 the vector of an unknown word is the mean of its n-grams as they were trained
  static/test_ngrams.py::test_a_known_word_is_the_mean_of_itself_and_its_n_grams_an_unknown_one_of_these_alone
fastText#11 a word that is a number shifts no vector
  static/test_corpus_faults.py::test_marks_that_other_tools_reserve_are_words_like_any_other
  static/test_vector_files.py::test_a_word_is_everything_before_the_last_numbers
spaCy#737 a row whose word is a space is left out and counted
  static/test_vector_files.py::test_the_first_of_equal_words_stays_and_nameless_rows_go
GloVe#225 the pairs of a word are trained in an order that is random from the first to the last
  static/test_training_faults.py::test_any_pair_of_a_word_can_come_first_or_last
  static/test_pairs.py::test_rows_of_a_tile_stand_together_in_random_order_and_another_for_another_seed
options numbers that make no sense are refused by name before any work
  cli/test_vectors_options.py::test_an_option_below_what_makes_sense_is_refused_before_any_work
  cli/test_vectors_options.py::test_a_setting_beyond_its_limits_is_refused_by_name_before_any_work
  cli/test_vectors_options.py::test_a_number_of_answers_or_words_below_what_makes_sense_is_refused
  static/test_foreign_vectors.py::test_a_negative_limit_is_an_error
"""
PROJECTS = ("GloVe", "allennlp", "bilm-tf", "fastText", "gensim", "spaCy", "word2vec")

TESTS_OF = listed(FAULTS)


@pytest.mark.parametrize("fault", TESTS_OF)
def test_every_fault_of_vectors_has_tests_that_are_there(fault: str) -> None:
    require_tests(TESTS_OF[fault])


def test_every_complaint_and_every_trap_is_named(shared: Path) -> None:
    sections = (shared / "STATIC.md").read_text(encoding="utf-8").split("\n## ")
    (traps,), (issues,) = ([s for s in sections if s.startswith(f"{number}. ")] for number in (3, 4))
    rows = [f"{name}#{number}" for name, number in re.findall(r"^\| \w+/(\w+)#(\d+)", issues, re.MULTILINE)]
    numbers = [f"trap{number}" for number in re.findall(r"\n(\d+)\. ", traps)]
    assert len(rows) == issues.count("\n| ") - 1 == 15 and len(numbers) == 17  # but the line of names
    assert list(TESTS_OF)[: 15 + 17] == rows + numbers


def test_every_public_bug_about_vectors_is_named(shared: Path) -> None:
    rows = (shared / "cases" / "public_bugs.jsonl").read_text(encoding="utf-8").splitlines()
    bugs = [bug["id"] for bug in map(json.loads, rows) if re.split("[/#]", bug["source"])[1] in PROJECTS]
    assert bugs == [name for name in TESTS_OF if re.fullmatch(r"B\d+", name)]
